"""The progress of a run: live lines on a terminal, a line an event in a log, JSON on request.

    terminal    a line for each source and a bar for each copy, rewritten once a second; events above them
    log         a line for each event, with its time and source; while tables are copied, also one a minute
    JSON        each status as it comes

Events are: a source changes its state (it runs, waits, fails); an error or a warning begins, or a warning
ends; a table stops, comes back, is exact for the first time, or was altered. A repetition is no event, nor is
a change of numbers alone.

Each source of a run (`pipeline.status_report`) hands over a status about once a second. If the reader or the
terminal goes away, the mirror goes on and nothing more is printed.
"""

from __future__ import annotations

import json
import re
import shlex
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from types import TracebackType

from rich.console import Group
from rich.live import Live
from rich.text import Text

from headrace.cli.layout import Sheet
from headrace.cli.output import Lines, is_ascii
from headrace.cli.overview import copy_lines, source_lines, standing_lines
from headrace.core.records import to_record
from headrace.lake.format.status import CopyStatus, SourceStatus, TableStatus, seconds_since
from headrace.status import sentences, words
from headrace.status.pace import Pace
from headrace.status.picture import SourcePicture
from headrace.status.summary import is_copied

BUSY_SECONDS = 30.0  # a shorter step of the loop is no event
AGAIN_SECONDS = 60.0  # a fact that comes back after less than this is no event
COPY_SECONDS = 60.0  # between two lines on copies
LOCKED_SECONDS = 10.0  # a shorter lock on a table is no event
NAMED = 5
_STATES = ("copying", "rewriting", "pending", "catching_up", "joining", "live", "stopped")
_NUMBER = re.compile(r"\d[\d.,:]*")


class ProgressView:
    """Prints status records; use it in a `with`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._json = as_json
        self._console = Lines(stderr=True)
        self._ascii = is_ascii(self._console.file)
        self._unread = False
        self._hint: str | None = None  # printed before the first status
        self._live: Live | None = None
        self._newest: dict[str, SourcePicture] = {}
        self._paces: defaultdict[str, Pace] = defaultdict(Pace)
        self._states: dict[str, str] = {}
        self._facts: defaultdict[str, dict[str, float]] = defaultdict(dict)  # and when they last held
        self._warned: defaultdict[str, set[str]] = defaultdict(set)
        self._copies_at: dict[str, float] = {}
        self._exact: dict[str, set[str]] = {}
        self._said: defaultdict[str, set[str]] = defaultdict(set)
        self._away: defaultdict[str, set[str]] = defaultdict(set)  # tables that left the marks, by source
        self._anew: defaultdict[str, set[str]] = defaultdict(set)  # tables with a new copy beside the old
        self._waits: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # by table and code
        self._lock = threading.Lock()  # each source calls from its own thread

    def __enter__(self) -> ProgressView:
        if self._console.is_live and not self._json:
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            with suppress(OSError):
                self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()

    def begin(self, lake: str, page: str | None) -> None:
        """Print the page's address; if there is none, print with the first status how to get one."""
        if page is None:
            self._hint = f"no page is served; headrace serve --lake {shlex.quote(lake)} shows one"
            return
        with self._lock, suppress(OSError):
            self._print(f"the page is at {page}")

    def tell(self, status: SourceStatus) -> None:
        """Show the status of one source."""
        with self._lock:
            if self._unread:
                return
            try:
                self._show(status)
            except OSError:
                self._unread = True

    def _show(self, said: SourceStatus) -> None:
        if self._json:
            print(json.dumps(to_record(said)), flush=True)
            return
        if self._hint is not None:
            self._print(self._hint)
            self._hint = None
        newest = 0 if said.epochs is None else said.epochs.newest
        self._newest[said.source] = SourcePicture(said, 0.0, newest)
        self._paces[said.source].see(time.monotonic(), said)
        for line in self._turns(said):
            self._print(line)
        for line in [*self._first_exact(said), *self._news(said)]:
            self._print(f"{said.source}: {line}")
        if self._live is not None:
            self._live.update(self._board(), refresh=True)

    def _print(self, text: str) -> None:
        sheet, stamp = Sheet(self._console.width, self._ascii), f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        line = Text.assemble((stamp, "dim" if self._live else ""), " ", sheet.clean(text))
        self._console.print(line, highlight=False, soft_wrap=True)

    def _board(self) -> Group:
        """The lines that are rewritten: sources, and copies under way."""
        sheet, sources = Sheet(self._console.width, self._ascii), list(self._newest.values())
        rates = {source.name: self._paces[source.name].rates() for source in sources}
        copies = [
            (source, *each) for source in sources for each in source.tables.items() if is_copied(each[1])
        ]
        room = max(3, self._console.height // 2)
        standing = (line for each in sources for line in standing_lines(each, sheet, len(sources) > 1))
        lines = [*source_lines(sources, rates, sheet), *standing][:room]
        return Group(*lines, *copy_lines(copies, rates, sheet, max(3, room - len(lines))))

    # --- events ---------------------------------------------------------------------------------

    def _turns(self, said: SourceStatus) -> Iterator[str]:
        """Say that a source's state, facts or warnings changed; where no bar shows a copy, how far it is."""
        source, now = said.source, time.monotonic()
        told, facts = self._facts[source], set(_facts(said))
        turned = self._states.get(source) != said.state
        self._states[source] = said.state
        if turned or facts - told.keys():
            # The error that ends a run of one source is printed whole when the command ends.
            yield summary(said, code_only=said.state == "failed" and len(self._newest) == 1)
        elif self._live is None and now - self._copies_at.get(source, now) >= COPY_SECONDS:
            yield from self._copying(said)
        self._facts[source] = dict.fromkeys(facts, now) | {
            fact: at for fact, at in told.items() if fact not in facts and now - at < AGAIN_SECONDS
        }
        over = self._warned[source] - said.warnings.keys()
        self._warned[source] = set(said.warnings)
        if over:
            yield f"{source}: over: {', '.join(sorted(over))}"
        copies = any(table.state == "copying" for table in (said.tables or {}).values())
        if not copies:
            self._copies_at.pop(source, None)
        elif source not in self._copies_at:
            self._copies_at[source] = now

    def _copying(self, said: SourceStatus) -> Iterator[str]:
        copies, rates = said.copy or CopyStatus(), self._paces[said.source].rates()
        self._copies_at[said.source] = time.monotonic()
        if not copies.bytes_known:
            return
        rate, left = sum(rates.copies.values()), max(0, copies.bytes_known - copies.bytes_done)
        pace = f", {words.size(rate)}/s, {words.span(left / rate)} left" if rate else ""
        share = min(1.0, copies.bytes_done / copies.bytes_known)
        yield f"{said.source}: {share:.0%} of {words.size(copies.bytes_known)} copied{pace}"

    def _first_exact(self, said: SourceStatus) -> Iterator[str]:
        """Name the tables that are in the marks for the first time in this run."""
        if said.tables is None:
            return
        live = {name for name, table in said.tables.items() if table.state == "live"}
        before, self._exact[said.source] = self._exact.get(said.source), live
        names = [] if before is None else sorted(live - before - self._away[said.source])
        if names:
            more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
            yield f"in the marks, exact: {', '.join(names[:NAMED])}{more}"

    def _news(self, said: SourceStatus) -> Iterator[str]:
        """Say once, a line each, which tables stopped, wait, were altered, came back or are not mirrored."""
        source, tables = said.source, said.tables or {}
        stops = (sentences.stop(name, table) for name, table in tables.items())
        anew = {text: name for name, table in tables.items() if (text := sentences.copied_anew(name, table))}
        altered = {sentences.alteration(each): each for each in said.alterations}
        lines = [*filter(None, stops), *anew, *sentences.columns_left_out(tables)]
        lines += [*sentences.unmirrored_lines(said.unmirrored_tables), *altered]
        lines += filter(None, [sentences.gone_line(tables)])
        fresh = [line for line in lines if line not in self._said[source]]
        # A line told of the copy when it began, so its alteration needs no line.
        self._anew[source] |= set(anew.values())
        fresh = [
            line for line in fresh if line not in altered or altered[line].table not in self._anew[source]
        ]
        fresh += self._news_of_waits(source, tables)
        self._away[source] |= {altered[line].table for line in fresh if line in altered}
        self._away[source] |= {name for name, table in tables.items() if table.state == "stopped"}
        fresh += self._long_locks(source, tables)
        yield from [*fresh, *self._back(source, tables)]
        # A line that does not hold any more is news again when it comes back.
        self._said[source] = set(lines)

    def _news_of_waits(self, source: str, tables: Mapping[str, TableStatus]) -> Iterator[str]:
        """Say why tables wait for their next try: once for each reason, since each try changes the time."""
        waiting = set()
        for name, table in tables.items():
            text = sentences.waits(name, table)
            if text is not None and table.error is not None:
                reason = (name, str(table.error["code"]))
                waiting.add(reason)
                if reason not in self._waits[source]:
                    yield text
        self._waits[source] = waiting

    def _back(self, source: str, tables: Mapping[str, TableStatus]) -> Iterator[str]:
        """Name the tables that left the marks and are in them again."""
        for name in sorted(self._away[source] & tables.keys()):
            if tables[name].state == "live" and tables[name].unseen_since is None:
                self._away[source].discard(name)
                self._anew[source].discard(name)
                yield sentences.back(name, tables[name])

    def _long_locks(self, source: str, tables: Mapping[str, TableStatus]) -> list[str]:
        """Say since when a lock keeps tables out of the marks, and who holds it."""
        now, lines = datetime.now(UTC), []
        for name, table in tables.items():
            line = sentences.unseen_line(name, table)
            age = seconds_since(table.unseen_since, now) or 0.0
            if line is not None and age > LOCKED_SECONDS and name not in self._away[source]:
                self._away[source].add(name)
                lines.append(line)
        return lines


def _facts(status: SourceStatus) -> Iterator[str]:
    """Yield the facts of a source without their numbers, so that new numbers alone make no event."""
    error = status.error
    texts = [] if error is None else [f"{error['code']}{error['primary']}{error.get('detail')}"]
    texts += [f"{code}{text}" for code, text in status.warnings.items()]
    texts += [] if status.spark is None else [status.spark.what]
    texts += [] if status.work is None or not _is_busy(status) else [status.work.what]
    yield from (_NUMBER.sub("", text) for text in texts)


def _is_busy(status: SourceStatus) -> bool:
    return (seconds_since(status.turned_at, datetime.now(UTC)) or 0.0) > BUSY_SECONDS


def _state(table: TableStatus) -> str:
    """The state to print: a table that the run takes up again by itself is "pending"."""
    return "pending" if table.follows else table.state


def summary(status: SourceStatus, *, code_only: bool = False) -> str:
    """A status in one line."""
    tables = (status.tables or {}).values()
    counts = Counter(_state(table) for table in tables if not table.is_missing)
    parts = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
    if counts["copying"]:
        copies = status.copy or CopyStatus()
        parts.append(f"{copies.rows_done:,} of about {copies.rows_known:,} rows copied")
    if status.position is not None:
        parts.append(f"mark at {status.position.frontier}, {status.position.lag_bytes:,} bytes behind")
    if status.spark is not None:
        parts.append(status.spark.what)
    # Without the seconds, so that they make no new line.
    if status.work is not None and _is_busy(status):
        parts.append(f"busy: {status.work.what}")
    if status.error and code_only:
        parts.append(status.error["code"])
    elif status.error:
        error = status.error
        # The detail says who holds the source up.
        detail = f" ({error['detail']})" if error.get("detail") else ""
        parts.append(f"{error['code']}: {error['primary']}{detail}")
    parts += [f"{code}: {text}" for code, text in status.warnings.items()]
    return f"{status.source} {status.state}" + (f": {', '.join(parts)}" if parts else "")
