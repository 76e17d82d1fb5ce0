"""The comparison of two contents of one table: finds, file by file, the ranges of keys that differ.

    sums of the old files  −  sums of the new files  =  nothing       range by range: there they are equal

Files never change, and sums add up (`core.checksum`). So the sums of files stay valid while the stream
exchanges files on both sides, and later only newer files have to be read. That allows comparing a large table
beside the loop: each round leaves fewer rows, until the rest is so small that an epoch can do it (`near`).
The rounds also end if the stream exchanges files as fast as they are read.

`tasks.compare.differences` has the tasks. Only one attempt knows the checksums: after a crash, the next one
sums up again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.core.checksum import Sums
from headrace.core.columns import Ints
from headrace.core.errors import Definite
from headrace.core.failpoint import failpoint
from headrace.lake.format.vector import FileRows
from headrace.pipeline.state.owner import beside
from headrace.pipeline.tasks.compare import differences
from headrace.pipeline.tasks.compare.differences import FileSums, KeySample, SideFile
from headrace.pipeline.tasks.table_task import pack, unpack
from headrace.spark.jobs import Background, Jobs

NEAR_ROWS = 200_000

Weights = npt.NDArray[np.float64]
_Known = dict[tuple[bool, FileRows], FileSums]


@dataclass(slots=True)
class KnownChecksums:
    """The checksums of two contents of one table, as far as they are known."""

    bounds: tuple[bytes, ...] | None = None  # of the ranges; None: not chosen yet
    _shadows: tuple[int, ...] = ()
    _checksums: _Known = field(default_factory=dict)
    _rows_left: float = float("inf")  # rows that were not summed when the last round began
    _round: Future[Any] | None = None

    # --- beside the loop ------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Tell whether a round is under way."""
        return self._round is not None and not self._round.done()

    def near(self, side_files: Sequence[SideFile], jobs: Callable[[int], Jobs]) -> bool:
        """Tell whether so little is left that it can be done at once; else begin a round."""
        if self._round is not None:
            _end(self._round)
            self._round = None
        missing = self._missing(side_files)
        left = sum(side_file.file.alive for side_file in missing)
        if left <= NEAR_ROWS or 2 * left > self._rows_left:
            return True
        self._rows_left = left
        self._round = beside(partial(self._complete_beside, missing, jobs(left)))
        return False

    def _complete_beside(self, side_files: Sequence[SideFile], jobs: Jobs) -> None:
        failpoint("reconcile.weigh")
        self.complete(side_files, Background(jobs))

    # --- checksums ------------------------------------------------------------------------------

    def complete(self, side_files: Sequence[SideFile], jobs: Jobs) -> None:
        """Sum up those of the files that are not summed yet."""
        missing = self._missing(side_files)
        if not missing:
            return
        if self.bounds is None:
            rows = sum(side_file.file.alive for side_file in side_files)
            # A single file of each side has been bounded when it was written.
            few = rows <= differences.ROWS_PER_RANGE and len(side_files) <= 2
            self.bounds = () if few else _bounds(side_files, rows, jobs)
        bounded = [replace(side_file, bounds=self.bounds) for side_file in missing]
        answers = jobs.run(differences.sum_up, [pack(side_file) for side_file in bounded])
        for side_file, answer in zip(missing, answers, strict=True):
            self._checksums[side_file.place] = unpack(answer, FileSums)

    def _missing(self, side_files: Sequence[SideFile]) -> list[SideFile]:
        """Find the files that have yet to be summed with their present contents."""
        if side_files:
            given = side_files[0].terms.table
            # A text without a lake form may come or go in a table without a key and leave its file alone.
            if self._shadows != given.raw_columns or (given.raw_columns and given.schema.is_multiset):
                self._checksums.clear()
            self._shadows = given.raw_columns
        return [side_file for side_file in side_files if side_file.place not in self._checksums]

    # --- results --------------------------------------------------------------------------------

    def different(self, side_files: Iterable[SideFile]) -> list[SideFile]:
        """Return the files with rows in ranges that differ, each with these ranges and their lots."""
        side_files = list(side_files)
        both = self._weights(side_files)
        difference = self._sums(side_file for side_file in side_files if side_file.new) - self._sums(
            side_file for side_file in side_files if not side_file.new
        )
        return self._lots(side_files, both, difference.uneven())

    def everything(self, side_files: Iterable[SideFile]) -> list[SideFile]:
        """All files, with all ranges."""
        side_files = list(side_files)
        both = self._weights(side_files)
        return self._lots(side_files, both, np.flatnonzero(both))

    def cuts(self, side_files: Iterable[SideFile]) -> tuple[bytes, ...]:
        """Find where each lot but the first begins, if all rows are compared."""
        side_files = list(side_files)
        lots = np.floor(np.cumsum(self._weights(side_files)))
        return tuple((self.bounds or ())[i] for i in np.flatnonzero(np.diff(lots)))

    @property
    def _ranges(self) -> int:
        return len(self.bounds or ()) + 1

    def _sums(self, side_files: Iterable[SideFile]) -> Sums:
        total = Sums.zero(self._ranges)
        for side_file in side_files:
            found = self._checksums[side_file.place]
            total += found.sums.spread(found.ranges, self._ranges)
        return total

    def _rows(self, side_files: Iterable[SideFile]) -> Ints:
        """Count the rows of each range, on both sides together."""
        return self._sums(side_files).counts

    def _weights(self, side_files: Sequence[SideFile]) -> Weights:
        """Weigh each range, by its rows and by their bytes, on both sides together."""
        sizes = np.zeros(self._ranges, np.int64)
        for side_file in side_files:
            found = self._checksums[side_file.place]
            sizes[found.ranges] += found.sizes
        return np.maximum(
            self._rows(side_files) / differences.ROWS_PER_LOT, sizes / differences.BYTES_PER_LOT
        )

    def _lots(self, side_files: Iterable[SideFile], weights: Weights, wanted: Ints) -> list[SideFile]:
        """Group neighbouring ranges into lots, one for each task."""
        before = np.cumsum(weights[wanted]) - weights[wanted]
        lots = dict(zip(wanted.tolist(), before.astype(np.int64).tolist(), strict=True))
        found = []
        for side_file in side_files:
            mine = [number for number in self._checksums[side_file.place].ranges.tolist() if number in lots]
            if mine:
                pairs = tuple((number, lots[number]) for number in mine)
                found.append(replace(side_file, bounds=self.bounds or (), lots=pairs))
        return found


def _bounds(side_files: Sequence[SideFile], rows: int, jobs: Jobs) -> tuple[bytes, ...]:
    answers = jobs.run(differences.sample, [pack(side_file) for side_file in side_files])
    return differences.bounds([unpack(answer, KeySample) for answer in answers], rows)


def _end(done: Future[Any]) -> None:
    """End without a verdict: an error of the table itself comes again when an epoch compares it."""
    try:
        done.result()
    except Definite:
        return
