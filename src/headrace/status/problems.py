"""The problems of a lake, in the order in which a person should look at them, and the commands to type.

A problem concerns a lake, a source or a table. Its commands come from the error's hint, which may name them
among other words, and get the lake's address: so they can be copied.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.records import to_record
from headrace.status import faults, words
from headrace.status.picture import DROPPED, SourcePicture, TableStatus
from headrace.status.watch import View

GRAVE, MILD = "grave", "mild"
BEHIND_SECONDS = 300.0
_COMMAND = re.compile(
    r"headrace (tables (?:resync|drop)|run --reconcile|run|verify|maintain|drop --stop|drop)(?![\w-])"
    r"|(pip install (?:--upgrade headrace|'[^']*'))"
)


_ONLY_COMMAND = re.compile(
    r"headrace (tables (?:add|drop|resync)|run --reconcile|run|maintain|drop(?: --stop)?)(?: [^\s-]\S*)?"
)
_EFFECTS: Mapping[str, str] = {
    "tables resync": "copy it anew from the database; what can be read stays readable, other tables go on:",
    "tables drop": "leave it out of the mirror; what the lake has of it stays readable:",
    "tables add": "mirror it:",
    "run --reconcile": "copy all tables anew, and write what differs in one mark:",
    "run": "start a run; it goes on where the mirror stands:",
    "maintain": "put small files together and let old ones go:",
    "drop --stop": "end the run, and remove what it made at the database:",
    "drop": "remove what the mirror made at the database; the lake stays readable:",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """A fact that a person should know."""

    weight: str
    place: str  # the lake, source or table
    primary: str
    code: str = ""
    detail: str | None = None
    hint: str | None = None
    commands: Sequence[str] = ()
    source: str | None = None
    table: str | None = None
    brief: str = ""  # in a few words, for the first line of the page
    lake: str = ""

    @property
    def advice(self) -> str | None:
        """The hint. If it is only a command, the command's effect: `commands` holds the command in full."""
        found = _ONLY_COMMAND.fullmatch(self.hint or "") if self.commands else None
        return self.hint if found is None else _EFFECTS[found[1]]


def problems(view: View) -> list[Problem]:
    """Every problem of a lake, the grave ones first."""
    found = [*_of_lake(view)]
    for source in view.sources:
        found += _of_source(view.lake, source)
    briefed = [replace(problem, brief=problem.brief or problem.primary, lake=view.lake) for problem in found]
    return sorted(briefed, key=lambda problem: problem.weight != GRAVE)


def commands(hint: str | None, lake: str, table: str | None = None) -> list[str]:
    """The commands that a hint names, ready to be typed."""
    found: list[str] = []
    for match in _COMMAND.finditer(hint or ""):
        made = match[2] or _whole(match[1], lake, table)
        if made not in found:
            found.append(made)
    return found


def _whole(words: str, lake: str, table: str | None) -> str:
    named = f" {shlex.quote(table)}" if words.startswith("tables ") and table else ""
    if words.startswith("tables ") and not table:
        named = " TABLE"
    return f"headrace {words} --lake {shlex.quote(lake)}{named}"


def _of_lake(view: View) -> Iterator[Problem]:
    if view.error is not None:
        error = view.error
        yield Problem(
            GRAVE,
            f"lake {view.lake}",
            error.primary,
            error.code,
            error.detail,
            error.hint,
            commands(error.hint, view.lake),
        )
    elif not view.sources:
        yield Problem(MILD, f"lake {view.lake}", "nothing is mirrored into this lake yet")


def _of_source(lake: str, source: SourcePicture) -> Iterator[Problem]:
    if source.status.state == DROPPED:
        return  # somebody dropped it on purpose
    place, error = f"source {source.name}", source.status.error
    if faults.is_left(source):
        yield _without_run(lake, source, place)
    elif error is not None:
        yield _from(error, GRAVE, place, lake, source.name)
    else:
        for late in faults.behind(source, BEHIND_SECONDS):
            yield _from(to_record(late), GRAVE, place, lake, source.name)
    yield from _log_near_limit(source, place)
    yield from _differing(lake, source)
    for name, table in source.tables.items():
        yield from _of_table(lake, source.name, name, table)
    for code, primary in source.warnings.items():
        yield Problem(MILD, place, primary, code, source=source.name)


def _without_run(lake: str, source: SourcePicture, place: str) -> Problem:
    stopped = source.state == "stopped"
    error = faults.not_running(source)
    return Problem(
        GRAVE,
        place,
        "its run was stopped" if stopped else "no run keeps it up to date",
        error.code,
        None if stopped else error.detail,
        "what is mirrored stays readable; the database may hold back its log until a run goes on",
        [f"headrace run --lake {shlex.quote(lake)}"],
        source.name,
    )


def _differing(lake: str, source: SourcePicture) -> Iterator[Problem]:
    for name, proof in source.proofs.items():
        if proof.outcome == "different":
            resync = f"headrace tables resync --lake {shlex.quote(lake)} {shlex.quote(name)}"
            again = f"headrace verify --lake {shlex.quote(lake)} --tables {shlex.quote(name)}"
            yield Problem(
                GRAVE,
                f"table {name}",
                "it differs from its source, as the last verify found",
                "VERIFY_DIFFERENT",
                f"verified {words.ago(words.moment(proof.at))}, at {proof.position}",
                "copy it anew, then verify it again",
                [resync, again],
                source.name,
                name,
            )


def _of_table(lake: str, source: str, name: str, table: TableStatus) -> Iterator[Problem]:
    place = f"table {name}"
    if table.error is not None:
        stopped = table.state == "stopped" and not table.follows
        problem = _from(table.error, GRAVE if stopped else MILD, place, lake, source, name)
        if stopped:
            where = "" if table.stopped_at is None else f", at {table.stopped_at}"
            since = words.clock_and_age(words.moment(table.stopped_since))
            more = f"Stopped {since}. " * bool(since) + f"It can be read as of its last exact mark{where}."
            detail = more if problem.detail is None else f"{problem.detail}. {more}"
            problem = replace(problem, detail=detail, brief="stopped")
        elif table.state == "stopped":
            problem = _returning(problem, table, lake)
        yield problem
    if table.unseen_since is not None:
        who = f"it is locked by {table.holder}" if table.holder else "it is locked"
        since = words.clock(words.moment(table.unseen_since)) or table.unseen_since
        back = "it comes back by itself once the lock is gone"
        yield Problem(MILD, place, f"in no mark since {since}", "", who, back, (), source, name)


def _returning(problem: Problem, table: TableStatus, lake: str) -> Problem:
    """The problem of a table that the run takes up again by itself: no person must act, but one may."""
    if table.is_missing:
        drop = _whole("tables drop", lake, problem.table)
        return replace(
            problem, hint="made again at the source, it comes back by itself; gone for good:", commands=[drop]
        )
    if table.retry_at is not None:
        return replace(
            problem, hint=f"the next try is at {words.clock(words.moment(table.retry_at))}; {problem.hint}"
        )
    return replace(problem, hint="nothing: it is copied anew and comes back by itself", commands=())


def _log_near_limit(source: SourcePicture, place: str) -> Iterator[Problem]:
    upstream = source.status.upstream
    if not source.runs or upstream is None or upstream.retained_bytes is None or not upstream.limit_bytes:
        return
    share = upstream.retained_bytes / upstream.limit_bytes
    if share > 0.8:
        yield Problem(
            GRAVE,
            place,
            f"the database holds back {share:.0%} of the log that it may",
            "",
            None,
            "beyond its limit the mirror loses its place, and all tables are copied anew",
            (),
            source.name,
        )


def _from(
    error: Mapping[str, Any], weight: str, place: str, lake: str, source: str, table: str | None = None
) -> Problem:
    hint = error.get("hint")
    return Problem(
        weight,
        place,
        str(error.get("primary")),
        str(error.get("code")),
        error.get("detail"),
        hint,
        commands(hint, lake, table),
        source,
        table,
    )
