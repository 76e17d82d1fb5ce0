"""The size of a source's part of the lake, for its status; nobody lists the lake at each look.

    counted at the start, after each maintenance, or after an hour     the files that are there, in a thread
    each mark after that                                               adds what it wrote

So the sizes are a little too large or too small between two counts: maintenance and other programs delete
files, and what a mark writes to logs is an estimate.

`forecast` tells before a first run what an hour of marks will write.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from headrace.core.errors import HeadraceError
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan
from headrace.lake.format.status import TIME_SPEC, StorageStatus
from headrace.lake.store.contract import Store
from headrace.lake.store.open import usage
from headrace.pipeline.state.owner import beside
from headrace.pipeline.stream.cadence import SHORTEST_SECONDS, MarkCost, interval
from headrace.sources.contract.values import TableSize

HOUR_SECONDS = 3600.0
COUNT_SECONDS = HOUR_SECONDS
_BUCKET_SECONDS = 60.0
_BUCKETS = 60


@dataclass(slots=True)
class LakeSize:
    """The size of one source's part of the lake; the loop's thread alone uses it."""

    store: Store
    source: str
    status: StorageStatus = field(default_factory=StorageStatus)
    files_written: int = 0  # by marks, since the attempt began
    _hour: deque[tuple[int, int, int]] = field(default_factory=deque)  # minute, files, bytes
    _count: Future[tuple[int, int]] | None = None
    _counted_at: float = float("-inf")
    _maintained_at: float = 0.0

    def on_published(self, plan: Plan) -> None:
        """Add what an epoch wrote."""
        files, size = plan.file_count, plan.size_bytes
        self.files_written += files
        minute = int(time.monotonic() / _BUCKET_SECONDS)
        if self._hour and self._hour[-1][0] == minute:
            _, more_files, more = self._hour.pop()
            files_then, size_then = files + more_files, size + more
        else:
            files_then, size_then = files, size
        self._hour.append((minute, files_then, size_then))
        if self.status.counted_at is not None:
            self.status = replace(
                self.status, files=self.status.files + files, size_bytes=self.status.size_bytes + size
            )

    def turn(self, maintained_at: float) -> None:
        """Count the files in a thread if that is due; `maintained_at`: the time of the last maintenance."""
        oldest = int(time.monotonic() / _BUCKET_SECONDS) - _BUCKETS
        while self._hour and self._hour[0][0] <= oldest:
            self._hour.popleft()
        self.status = replace(
            self.status,
            hour_files=sum(files for _, files, _ in self._hour),
            hour_bytes=sum(size for _, _, size in self._hour),
        )
        if self._count is not None:
            self._take(self._count)
        elif maintained_at != self._maintained_at or time.monotonic() - self._counted_at >= COUNT_SECONDS:
            self._maintained_at, self._counted_at = maintained_at, time.monotonic()
            self._count = beside(self._files)

    def _files(self) -> tuple[int, int]:
        sizes = [usage(self.store, folder) for folder in layout.folders_of_source(self.source)]
        return sum(files for files, _ in sizes), sum(size for _, size in sizes)

    def _take(self, count: Future[tuple[int, int]]) -> None:
        if not count.done():
            return
        self._count = None
        try:
            files, size = count.result()
        except HeadraceError:
            return  # if it is more than a hiccup of the store, the run meets it by itself
        now = datetime.now(UTC).isoformat(timespec=TIME_SPEC)
        self.status = replace(self.status, files=files, size_bytes=size, counted_at=now)


# --- a forecast -------------------------------------------------------------------------------

# Of a mark: its plan, its row and that row's commit; of each table that changed in it: a file of rows, one of
# history, and the commits of both. The other figures are of `bench/cadence.py` and `bench/random_updates.py`.
_FILES_A_MARK, _FILES_A_TABLE = 3, 4
_CPU_A_TABLE = 0.018  # seconds
_BYTES_A_FILE = 3_000  # beside its rows
_COPIES_OF_A_ROW = 2  # compressed: in its table, more than once, and in history


@dataclass(frozen=True, slots=True)
class Forecast:
    """An estimate of what a mirror with default options does in an hour, before maintenance."""

    changes: float
    files: int
    bytes: int


def forecast(sizes: Iterable[TableSize]) -> Forecast | None:
    """Forecast the writes of a mirror of these tables; None if the server does not count their changes."""
    known = [(size, size.changes_an_hour) for size in sizes if size.changes_an_hour is not None]
    rates = [changes / HOUR_SECONDS for _, changes in known]
    if not known:
        return None
    seconds = SHORTEST_SECONDS
    for _ in range(5):  # rarer marks hold more tables, so the time between them converges
        touched = sum(1 - math.exp(-rate * seconds) for rate in rates)
        files = (1 - math.exp(-sum(rates) * seconds)) * _FILES_A_MARK + touched * _FILES_A_TABLE
        seconds = interval([MarkCost(touched * _CPU_A_TABLE, math.ceil(files))])
    hourly = files * HOUR_SECONDS / seconds
    rows = sum(changes * size.bytes / size.rows for size, changes in known if size.rows)
    return Forecast(
        changes=sum(rates) * HOUR_SECONDS,
        files=round(hourly),
        bytes=round(hourly * _BYTES_A_FILE + rows * _COPIES_OF_A_ROW),
    )
