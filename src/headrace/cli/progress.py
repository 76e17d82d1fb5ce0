"""The progress of a long command: a bar on a terminal, plain lines in a pipe, JSON on request.

A mirror does not end because nobody reads of it: where the reader is gone, nothing more is said.

It is fed with the statuses of a run (`pipeline.status_report`), about one a second and source, and
shows only what a person wants to know: how far the copy is, how far behind the stream, what went wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from headrace.cli.output import Lines
from headrace.lake.format.status import CopyStatus, SourceStatus, TableStatus, seconds_since
from headrace.status import sentences

LINE_EVERY = BUSY_SECONDS = 5.0
_STATES = ("copying", "rewriting", "pending", "catching_up", "joining", "live", "stopped")


class ProgressView:
    """Shows status records; use it in a `with`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._json = as_json
        self._console = Lines(stderr=True)
        self._unread = False
        self._bars: Bars | None = None
        self._copies: dict[str, Any] = {}
        self._lines: dict[str, tuple[str, float]] = {}
        self._said: defaultdict[str, set[str]] = defaultdict(set)
        self._away: defaultdict[str, set[str]] = defaultdict(set)  # tables that left the marks, by source
        self._anew: defaultdict[str, set[str]] = defaultdict(set)  # of those, which are copied beside
        self._waits: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)  # and why, by their codes
        self._lock = threading.Lock()  # every source tells from a thread of its own

    def __enter__(self) -> ProgressView:
        if self._console.is_terminal and not self._json:
            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.percentage:>3.0f}%"),
                TimeRemainingColumn(),
            )
            self._bars = Bars(*columns, console=self._console, transient=True)
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars is not None:
            self._bars.stop()

    def note(self, text: str) -> None:
        """Say something of the run that is no status."""
        self._console.print(text, highlight=False, soft_wrap=True)

    def tell(self, status: SourceStatus) -> None:
        """Show the status of one source."""
        with self._lock:
            if self._unread:
                return
            try:
                self._show(status)
            except BrokenPipeError:
                self._unread = True

    def _show(self, said: SourceStatus) -> None:
        if self._json:
            print(json.dumps(said.as_record()), flush=True)
            return
        if self._bars is not None:
            self._move(self._bars, said)
        self._line(said)
        self._news(said)

    def _move(self, bars: Bars, said: SourceStatus) -> None:
        source, copies = said.source, said.copy or CopyStatus()
        known, done = copies.bytes_known, copies.bytes_done
        if not known:
            return
        if source not in self._copies:
            self._copies[source] = bars.add_task(f"copying {source}", total=known)
        bars.update(self._copies[source], total=known, completed=done, visible=done < known)

    def _news(self, said: SourceStatus) -> None:
        """Say once, a line each, which tables stopped or were altered, and which nobody mirrors."""
        source, tables = said.source, said.tables or {}
        stops = (sentences.stop(name, table) for name, table in tables.items())
        anew = {text: name for name, table in tables.items() if (text := sentences.copied_anew(name, table))}
        altered = {sentences.alteration(each): each for each in said.alterations}
        lines = [*filter(None, stops), *anew, *sentences.columns_left_out(tables)]
        lines += [*sentences.unmirrored_lines(said.unmirrored), *altered]
        lines += filter(None, [sentences.gone_line(tables)])
        fresh = [line for line in lines if line not in self._said[source]]
        # Of a copy beside a table it was said when that began.
        self._anew[source] |= set(anew.values())
        fresh = [
            line for line in fresh if line not in altered or altered[line].table not in self._anew[source]
        ]
        fresh += self._news_of_waits(source, tables)
        self._away[source] |= {altered[line].table for line in fresh if line in altered}
        self._away[source] |= {name for name, table in tables.items() if table.state == "stopped"}
        for line in [*fresh, *self._back(source, tables)]:
            self._console.print(f"{source}: {line}", highlight=False, markup=False, soft_wrap=True)
        # What is true no longer is news when it comes true again.
        self._said[source] = set(lines)

    def _news_of_waits(self, source: str, tables: Mapping[str, TableStatus]) -> Iterator[str]:
        """Say why tables wait for their next try, once a reason: when that is changes with every try."""
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
        """Say of tables that left the marks that they are in them again."""
        for name in sorted(self._away[source] & tables.keys()):
            if tables[name].state == "live" and tables[name].unseen_since is None:
                self._away[source].discard(name)
                self._anew[source].discard(name)
                yield sentences.back(name, tables[name])

    def _line(self, said: SourceStatus) -> None:
        text, now = summary(said), time.monotonic()
        before, at = self._lines.get(said.source, ("", 0.0))
        turning = before.split(":", 1)[0] != text.split(":", 1)[0]
        if text != before and (turning or now - at >= LINE_EVERY):
            self._lines[said.source] = (text, now)
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _state(table: TableStatus) -> str:
    """The state as a person is told it: what comes back by itself waits for its copy."""
    return "pending" if table.follows else table.state


def summary(status: SourceStatus) -> str:
    """A status in one line."""
    tables = (status.tables or {}).values()
    counts = Counter(_state(table) for table in tables if not table.gone)
    parts = [f"{counts[state]} {state}" for state in _STATES if counts[state]]
    if counts["copying"]:
        copies = status.copy or CopyStatus()
        parts.append(f"{copies.rows_done:,} of about {copies.rows_known:,} rows copied")
    if status.position is not None:
        parts.append(f"mark at {status.position.frontier}, {status.position.lag_bytes:,} bytes behind")
    if status.spark is not None:
        parts.append(status.spark.what)
    # Without its seconds: a line that says the same is said once.
    if status.work is not None and (seconds_since(status.turned_at, datetime.now(UTC)) or 0.0) > BUSY_SECONDS:
        parts.append(f"busy: {status.work.what}")
    if status.error:
        error = status.error
        # The detail too: of what is waited for it says who holds it up.
        detail = f" ({error['detail']})" if error.get("detail") else ""
        parts.append(f"{error['code']}: {error['primary']}{detail}")
    parts += [f"{code}: {text}" for code, text in status.warnings.items()]
    return f"{status.source} {status.state}" + (f": {', '.join(parts)}" if parts else "")
