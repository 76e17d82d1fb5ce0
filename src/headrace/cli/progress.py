"""What a long command shows while it works: a bar on a terminal, plain lines in a pipe, JSON on request.

It is fed with the status records of a run (`pipeline.status_report`), about one a second and source, and
shows only what a person wants to know: how far the copy is, how far behind the stream, what went wrong.
"""

from __future__ import annotations

import json
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from headrace.status import sentences

LINE_EVERY = 5.0


class Progress:
    """Shows status records; use it in a `with`."""

    def __init__(self, *, as_json: bool = False) -> None:
        self._json = as_json
        self._console = Console(stderr=True)
        self._bars: Bars | None = None
        self._copies: dict[str, Any] = {}
        self._lines: dict[str, tuple[str, float]] = {}
        self._said: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()  # every source tells from a thread of its own

    def __enter__(self) -> Progress:
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

    def tell(self, record: Mapping[str, Any]) -> None:
        """One status record of one source."""
        with self._lock:
            if self._json:
                print(json.dumps(dict(record)), flush=True)
                return
            if self._bars is not None:
                self._move(self._bars, record)
            self._line(record)
            self._news(record)

    def _move(self, bars: Bars, record: Mapping[str, Any]) -> None:
        snapshot = record.get("snapshot") or {}
        known, done = snapshot.get("snapshot_bytes_known", 0), snapshot.get("snapshot_bytes_done", 0)
        source = str(record["source"])
        if not known:
            return
        if source not in self._copies:
            self._copies[source] = bars.add_task(f"copying {source}", total=known)
        bars.update(self._copies[source], total=known, completed=done, visible=done < known)

    def _news(self, record: Mapping[str, Any]) -> None:
        """What is said once, a line each: the tables that stopped, and those that nobody mirrors."""
        source, tables = str(record["source"]), record.get("tables") or {}
        stops = (sentences.stop(name, table) for name, table in tables.items())
        lines = [*filter(None, stops), *sentences.unmirrored(record.get("unmirrored") or {})]
        for line in lines:
            if line not in self._said[source]:
                self._console.print(f"{source}: {line}", highlight=False, markup=False, soft_wrap=True)
        # What is true no longer is news when it comes true again.
        self._said[source] = set(lines)

    def _line(self, record: Mapping[str, Any]) -> None:
        text, now = summary(record), time.monotonic()
        said, at = self._lines.get(str(record["source"]), ("", 0.0))
        turning = said.split(":", 1)[0] != text.split(":", 1)[0]
        if text != said and (turning or now - at >= LINE_EVERY):
            self._lines[str(record["source"])] = (text, now)
            self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def summary(record: Mapping[str, Any]) -> str:
    """A status record in one line."""
    parts = []
    tables: Mapping[str, Mapping[str, Any]] = record.get("tables") or {}
    for state in ("copying", "pending", "catching_up", "joining", "live", "stopped"):
        count = sum(table["state"] == state for table in tables.values())
        if count:
            parts.append(f"{count} {state}")
    snapshot = record.get("snapshot") or {}
    known, done = snapshot.get("snapshot_rows_known", 0), snapshot.get("snapshot_rows_done", 0)
    if any(table["state"] == "copying" for table in tables.values()):
        parts.append(f"{done:,} of about {known:,} rows copied")
    position = record.get("position")
    if position:
        parts.append(f"mark at {position['frontier']}, {position['lag_bytes']:,} bytes behind")
    error = record.get("error")
    if error:
        # The detail too: of what is waited for it says who holds it up.
        detail = f" ({error['detail']})" if error.get("detail") else ""
        parts.append(f"{error['code']}: {error['primary']}{detail}")
    parts += [f"{code}: {text}" for code, text in (record.get("warnings") or {}).items()]
    return f"{record['source']} {record['state']}: {', '.join(parts)}"
