"""The files of a marks table, put in order: marks that may go are left out, small files become large ones.

    before     ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪   a file a mark
    after      ██ ███████████ ▪▪▪▪              thinned · a thousand marks a file · too few to bother

Marks are looked into so many at once, from the oldest on, until some are found that may go. A file of marks
that are all thinned out to one a day says so in its footer (*final*): it is never looked into again, nor
written anew, so that years of marks cost no more than weeks.

The new files carry the bounds of their epochs in Delta's log, as `marks.MarkIndex` wants them, and the number
of their first epoch in their names: so it is told without opening a file that its marks are young. The result
is a step of the next epoch's plan, like any other; what it removes stays readable for the grace time.

It reads and writes files and commits nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import TIMESTAMP
from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.log.marks import FINAL, Mark, MarkIndex, rows_of
from headrace.lake.retain.thinning import HOURLY, Keeping, Known, fold_marks, thin_marks
from headrace.lake.store.contract import Store

MARKS_PER_FILE = 1000
# A mark of a thousand tables is a thousand times as large.
ENTRIES_PER_FILE = 200_000
ENTRIES_AT_ONCE = 500_000


@dataclass(frozen=True, slots=True)
class MarksFile:
    """The marks of a file that is to be written; no later thinning changes those of a final one."""

    rows: pa.Table
    final: bool = False


@dataclass(slots=True)
class TidyResult:
    """The outcome of tidying the files of marks."""

    remove: list[str] = field(default_factory=list)
    add: list[MarksFile] = field(default_factory=list)
    dropped_marks: int = 0  # marks that go
    more: bool = False  # not all that are old enough were looked into

    def __bool__(self) -> bool:
        return bool(self.remove)

    def write(self, store: Store, folder: str) -> tuple[DataFile, ...]:
        """Write the new files."""
        return tuple(
            datafile.write(
                store,
                folder,
                layout.file_name(file.rows["epoch"][0].as_py()),
                file.rows,
                entries={FINAL: b""} if file.final else None,
            )
            for file in self.add
        )


def tidy_files(
    marks: MarkIndex,
    now: datetime,
    keeping: Keeping,
    floor: int | None,
    known_of: Callable[[Mark], Known],
    least: int,
) -> TidyResult:
    """Thin out the marks that are old enough, and put the files of the others together.

    Of marks before the time `floor` only the last stays, which is the first that can be read.
    """
    tidying = _Tidying(marks, now, keeping, known_of)
    if marks:
        tidying.put_together(tidying.thin(floor), least)
    return tidying.found


class _Tidying:
    """One look at the marks of a source; `found` says what follows from it."""

    def __init__(
        self, kept: MarkIndex, now: datetime, keeping: Keeping, known: Callable[[Mark], Known]
    ) -> None:
        self.found = TidyResult()
        self._kept = kept
        self._now = now
        self._keeping = keeping
        self._known = known
        entries = max(1, len(kept[-1].versions)) if kept else 1
        self._at_once = max(MARKS_PER_FILE, ENTRIES_AT_ONCE // entries)
        self._per_file = max(1, min(MARKS_PER_FILE, ENTRIES_PER_FILE // entries))

    def thin(self, floor: int | None) -> int:
        """Leave out what may go; the number of the first block whose file may be put together with others.

        Final files are left as they are, unless the floor takes some of their marks.
        """
        kept = self._kept
        first = 0 if floor is None else min(_first_kept(kept, floor), self._at_once - 1)
        final = 0
        while final < len(kept.blocks) and kept.final(final):
            final += 1
        young = self._now - self._keeping.marks
        old = bisect_right(kept, young, lo=kept.start(final), key=lambda mark: mark.published_at)
        wanted = min(max(old, first) + 1, len(kept))
        window = self._thin(max(first, kept.start(final)), wanted)
        if window is None and not first:
            return self._is_closed(final, wanted)
        begin = 0 if first else final
        start, end, stay = window or (first, first + 1, kept[first : first + 1])
        rest = kept.start(begin)
        if first:
            rest = first + 1
            stay = stay[1:] if start == first else stay
        parts = [
            rows_of(fold_marks(kept[:rest], [first]) if first else []),
            kept.between(rest, start),
            rows_of(stay),
        ]
        self.found.more = end < wanted
        return self._replace(begin, end, pa.concat_tables(parts))

    def _thin(self, start: int, wanted: int) -> tuple[int, int, list[Mark]] | None:
        """Find the oldest marks of which some may go: from where to where, and those that stay."""
        while wanted - start >= 2:
            end = min(wanted, start + self._at_once)
            stay = thin_marks(self._kept[start:end], self._now, self._keeping, self._known)
            if len(stay) < end - start:
                return start, end, stay
            start = end - 1
        return None

    def _is_closed(self, final: int, wanted: int) -> int:
        """Write final files as soon as there are enough marks that no thinning changes any more."""
        kept, last = self._kept, final
        while last < len(kept.blocks):
            end = kept.start(last + 1)
            if end >= wanted or kept[end - 1].published_at >= self._settle:
                break
            last += 1
        start, end = kept.start(final), kept.start(last)
        return self._replace(final, end, kept.between(start, end)) if end - start >= self._per_file else final

    def _replace(self, begin: int, end: int, looked_into: pa.Table) -> int:
        """Write the blocks from `begin` on anew, up to the one with the last mark that was looked into."""
        kept = self._kept
        number = kept.number(end - 1) + 1
        behind = kept.between(end, kept.start(number))
        rows = pa.concat_tables([looked_into, behind])
        # The last mark of a window always stays, and may go with the next one.
        old = pc.less(looked_into["published_at"], pa.scalar(self._settle, TIMESTAMP)).to_pylist()[:-1]
        self.found.dropped_marks = kept.start(number) - kept.start(begin) - rows.num_rows
        self.found.remove += [path for block in kept.blocks[begin:number] for path in block.paths]
        self.found.add += self._cut(rows, old.index(False) if False in old else len(old))
        return number

    @property
    def _settle(self) -> datetime:
        """Marks from before this are thinned out to one a day, and stay as they are."""
        return self._now - HOURLY - timedelta(days=1)

    def put_together(self, start: int, least: int) -> None:
        """Put the small files of neighbours together, from this block on."""
        for run in self._runs(start, least):
            self.found.remove += [path for number in run for path in self._kept.blocks[number].paths]
            self.found.add += self._cut(pa.concat_tables([self._kept.rows(number) for number in run]))

    def _runs(self, start: int, least: int) -> Iterator[list[int]]:
        """The numbers of neighbouring blocks that are small, where they are enough."""
        run: list[int] = []
        for number, block in enumerate(self._kept.blocks[start:], start):
            if block.count < self._per_file:
                run.append(number)
                continue
            if len(run) >= max(2, least):
                yield run
            run = []
        if len(run) >= max(2, least):
            yield run

    def _cut(self, rows: pa.Table, settled: int = 0) -> Iterator[MarksFile]:
        """The marks in tables of the size of a file; so many at their beginning are settled."""
        rows = rows.sort_by("epoch")
        for start in range(0, rows.num_rows, self._per_file):
            end = start + self._per_file
            yield MarksFile(rows.slice(start, self._per_file), final=end <= settled)


def _first_kept(kept: MarkIndex, floor: int) -> int:
    """The last mark at or before the floor: there is where reading begins."""
    return max(0, bisect_right(kept, floor, key=lambda mark: mark.time) - 1)


def young(path: str, epoch: int) -> bool:
    """Tell whether a file of marks, by its name, holds none from before this epoch."""
    named = layout.epoch_of(path)
    return named is not None and named >= epoch


def first_young(marks: MarkIndex, moment: datetime) -> int:
    """The epoch from which on every mark was published after this moment, even if a clock was set back."""
    first = marks[-1].epoch + 1
    for number in reversed(range(len(marks.blocks))):
        rows = marks.rows(number)
        old = pc.indices_nonzero(pc.less_equal(rows["published_at"], pa.scalar(moment, TIMESTAMP)))
        if len(old):
            last = old[-1].as_py()
            return rows["epoch"][last + 1].as_py() if last + 1 < rows.num_rows else first
        first = rows["epoch"][0].as_py()
    return first
