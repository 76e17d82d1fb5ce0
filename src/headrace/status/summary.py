"""The summary of a lake in a few words; the page and the terminal share them.

    verdict     the first line: is the mirror true, and how far behind?
    behind · newest_mark · last_minute · pace · held_back · storage · states · owner     facts of a source
    CopyWords   a copy under way: how much, how fast, how long still
    by_weight   the order of tables: first stopped ones, then waiting or copied ones, then the others

A state is a word and a kind: good, busy, bad or idle. Each kind has a sign, for readers who can't see the
colours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from headrace.status import words
from headrace.status.pace import Rates
from headrace.status.picture import SourcePicture, TableStatus
from headrace.status.problems import GRAVE, Problem

Name = TypeVar("Name", str, tuple[str, str])  # a table's, or a source's and a table's

GOOD, BUSY, BAD, IDLE = "good", "busy", "bad", "idle"
SIGNS: Mapping[str, str] = {GOOD: "✓", BUSY: "…", BAD: "✕", IDLE: "–"}

_SOURCE_WORDS: Mapping[str, tuple[str, str]] = {
    "starting": ("starting", BUSY),
    "running": ("running", GOOD),
    "waiting": ("waiting", BUSY),
    "stopped": ("stopped", BAD),
    "failed": ("failed", BAD),
    "dropped": ("dropped", IDLE),
    "silent": ("not running", BAD),
    "never run": ("never run", BAD),
}
STATES = tuple(_SOURCE_WORDS)
_TABLE_KINDS: Mapping[str, str] = {
    "live": GOOD,
    "ready": GOOD,
    "copying": BUSY,
    "rewriting": BUSY,
    "pending": BUSY,
    "catching_up": BUSY,
    "joining": BUSY,
    "stopped": BAD,
}
_COPYING = ("copying", "rewriting", "pending")
_WEIGHT = (BAD, BUSY, IDLE, GOOD)


# --- states ---------------------------------------------------------------------------------------


def state_of(source: SourcePicture) -> str:
    """The state of a source as one of `STATES`."""
    word = "silent" if source.state.startswith("silent") else source.state
    return word if word in STATES else "waiting"


def source_state(source: SourcePicture) -> tuple[str, str]:
    """The state of a source: the word, and its kind."""
    return _SOURCE_WORDS[state_of(source)]


def table_state(table: TableStatus) -> tuple[str, str]:
    """The state of a table: the word, and its kind."""
    word = table.state.replace("_", " ") or "unknown"
    if table.copied_anew:
        word += ", copied anew"
    if table.unseen_since is not None:
        return f"{word}, locked", BUSY
    return word, kind_of(table)


def kind_of(table: TableStatus) -> str:
    """The kind of a table's state, without regard to locks."""
    return _TABLE_KINDS.get(table.state, IDLE)


def is_copied(table: TableStatus) -> bool:
    """Tell whether a copy of the table is under way, or waits for its turn."""
    return table.state in _COPYING or table.copied_anew is not None


def by_weight(tables: Mapping[Name, TableStatus]) -> list[Name]:
    """The names of tables: bad, busy, idle, good; among equals the one that changed last first."""
    newest_first = sorted(tables, key=lambda name: (tables[name].last_change or "", name), reverse=True)
    return sorted(newest_first, key=lambda name: _WEIGHT.index(table_state(tables[name])[1]))


# --- the first line -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FirstLine:
    """The answer to the first question: is the mirror true?"""

    kind: str
    line: str
    more: str | None


def verdict(wrong: Sequence[Problem], sources: Sequence[SourcePicture]) -> FirstLine:
    """Judge the sources by their problems."""
    grave = [problem for problem in wrong if problem.weight == GRAVE]
    exact, others = _exact(grave, sources)
    lag = max((source.lag_seconds or 0.0 for source in sources), default=0.0)
    living = bool(sources) and all(source.runs for source in sources)
    behind_by = f"{words.span(lag)} behind the database" if living else "as of the newest mark"
    if grave:
        first = grave[0]
        line = f"{first.place}: {first.brief}" if len(grave) == 1 else f"{len(grave):,} problems"
        more = f"{words.count_of(exact, 'table')} can be read exactly, {behind_by}" if exact else None
        return FirstLine(BAD, line, more)
    tables = f"{exact:,} of {exact + others:,} tables" if others else words.count_of(exact, "table")
    line = f"The mirror is true: {tables}, {behind_by}" if exact else "Nothing can be read yet"
    waiting = f"{words.count_of(others, 'table')} not exact yet" if others else None
    known = f"{words.count_of(len(wrong), 'thing')} to know below" if wrong else None
    more = "; ".join(filter(None, (waiting, known))) or None
    return FirstLine(GOOD if exact and not (wrong or others) else BUSY, line, more)


def _exact(grave: Iterable[Problem], sources: Sequence[SourcePicture]) -> tuple[int, int]:
    """Count the tables that follow their source and have no grave problem, and the others."""
    bad = {(problem.source, problem.table) for problem in grave if problem.table is not None}
    exact = others = 0
    for source in sources:
        for name, table in source.tables.items():
            follows = kind_of(table) == GOOD and table.unseen_since is None
            fine = follows and (source.name, name) not in bad
            exact, others = exact + fine, others + (not fine)
    return exact, others


# --- the facts of a source ------------------------------------------------------------------------


def behind(source: SourcePicture) -> str:
    """The lag, in seconds and in bytes of log."""
    position = source.position
    if position is None or not source.runs:
        return "unknown: no run is alive"
    bytes_behind = f", {words.size(position.lag_bytes)} of log" if position.lag_bytes else ""
    return f"{words.span(source.lag_seconds)}{bytes_behind}"


def newest_mark(source: SourcePicture) -> str:
    """The newest mark's number and age."""
    marked = words.moment(source.status.marked_at)
    return f"{source.epoch:,}, {words.ago(marked)}" if marked else f"{source.epoch:,}"


def last_minute(rates: Rates) -> str | None:
    """The marks and changes a minute; None before they are known."""
    if rates.marks is None or rates.changes is None:
        return None
    marks, changes = round(rates.marks), round(rates.changes)
    return f"{words.count_of(marks, 'mark')}, {words.count_of(changes, 'change')}"


def held_back(source: SourcePicture) -> str | None:
    """The log that the source holds back for us, against its limit."""
    upstream = source.status.upstream
    if upstream is None or upstream.retained_bytes is None:
        return None
    held, limit = words.size(upstream.retained_bytes), upstream.limit_bytes
    if not limit:
        return f"{held}, and there is no limit"
    return f"{held} of {words.size(limit)}" + ("" if source.runs else ", when it was last heard of")


def storage(source: SourcePicture) -> str | None:
    """The size of the source's part of the lake, and what the last hour added."""
    known = source.status.storage
    if known is None or known.counted_at is None:
        return None
    said = f"{words.count_of(known.files, 'file')}, {words.size(known.size_bytes)}"
    if not source.runs:
        return said
    added = f"{words.count_of(known.hour_files, 'file')}, {words.size(known.hour_bytes)}"
    return f"{said}; added by marks of the last hour: {added}"


def pace(source: SourcePicture) -> str | None:
    """The time between two marks at least, while a run is alive."""
    interval = source.status.mark_interval
    if interval is None or not source.runs:
        return None
    chosen = ", by what marks cost" if source.status.chooses_interval else ""
    return f"at least {words.span(interval)} apart{chosen}"


def states(tables: Iterable[TableStatus]) -> str:
    """The number of tables in each state, the most frequent first."""
    counts = Counter(table.state.replace("_", " ") for table in tables)
    return ", ".join(f"{count:,} {state}" for state, count in counts.most_common()) or "none"


def owner(source: SourcePicture) -> str:
    """The process that runs the source, and the age of its last status."""
    known = source.status.owner
    where = f"process {known.get('pid')} on {known.get('host')}" if known.get("pid") else "none"
    return f"{where}, heard {words.span(source.age)} ago" if source.age is not None else where


# --- copies ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CopyWords:
    """A copy in words; without a record the copy waits for its turn."""

    share: float | None = None  # 0 to 1
    size: str = ""  # of the whole copy
    rows: str = ""
    rate: str = ""
    time_left: str = ""

    @property
    def progress(self) -> str:
        return "waits" if self.share is None else f"{self.share:.0%} of {self.size}"


def copy_words(table: TableStatus, rate: float | None) -> CopyWords:
    """Say how far a table's copy is, at so many bytes a second."""
    copy = table.copy
    if copy is None:
        return CopyWords()
    share = min(1.0, copy.bytes_done / copy.bytes_known) if copy.bytes_known else 0.0
    return CopyWords(
        share,
        words.size(copy.bytes_known),
        f"{copy.rows_done:,} of about {copy.rows_known:,}",
        f"{words.size(rate)}/s" if rate else "",
        words.span(max(0, copy.bytes_known - copy.bytes_done) / rate) if rate else "",
    )
