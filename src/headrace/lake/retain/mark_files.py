"""The files of a marks table, put in order: marks that may go are left out, small files become large ones.

    before     ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪   a file a mark
    after      ██ ███████████ ▪▪▪▪              thinned · a thousand marks a file · too few to bother

The new files carry the bounds of their epochs in Delta's log, as `marks.Kept` wants them, and the number of
their first epoch in their names: so it is told without opening a file that its marks are young. The result
is a step of the next epoch's plan, like any other; what it removes stays readable for the grace time.

Called by the pipeline in a thread of its own: it reads and writes files and commits nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import TIMESTAMP
from headrace.lake.format import datafile, layout
from headrace.lake.format.plan import DataFile
from headrace.lake.log.marks import Block, Kept, Mark, rows_of
from headrace.lake.retain.thinning import Keeping, Known, folded, thinned
from headrace.lake.store.contract import Store

MARKS_PER_FILE = 1000
# A mark of a thousand tables is a thousand times as large.
ENTRIES_PER_FILE = 200_000
ENTRIES_AT_ONCE = 500_000


@dataclass(slots=True)
class Tidied:
    """The outcome of tidying the files of marks."""

    remove: list[str] = field(default_factory=list)
    tables: list[pa.Table] = field(default_factory=list)
    dropped: int = 0  # marks that go
    more: bool = False  # not all that are old enough were looked into

    def __bool__(self) -> bool:
        return bool(self.remove)

    def write(self, store: Store, folder: str) -> tuple[DataFile, ...]:
        """Write the new files."""
        return tuple(
            datafile.write(store, folder, layout.file_name(table["epoch"][0].as_py()), table)
            for table in self.tables
        )


def tidied(
    kept: Kept, now: datetime, keeping: Keeping, floor: int | None, known: Callable[[Mark], Known], least: int
) -> Tidied:
    """Thin out the marks that are old enough, and put the files of the others together.

    Of marks before the time `floor` only the last stays, which is the first that can be read.
    """
    found = Tidied()
    thin = _thin(kept, now, keeping, floor, known, found)
    for run in _runs(kept.blocks[thin:], thin, least):
        found.remove += [path for number in run for path in kept.blocks[number].paths]
        found.tables += _cut(pa.concat_tables([kept.rows(number) for number in run]))
    return found


def _thin(
    kept: Kept,
    now: datetime,
    keeping: Keeping,
    floor: int | None,
    known: Callable[[Mark], Known],
    found: Tidied,
) -> int:
    """Leave out what may go; the number of the first block that was not looked into."""
    old = bisect_right(kept, now - keeping.marks, key=lambda mark: mark.published_at)
    first = 0 if floor is None else _first_kept(kept, floor)
    wanted = min(max(old, first) + 1, len(kept))
    end = min(wanted, _most(kept))
    if end < 2:
        return 0
    first = min(first, end - 1)
    stay = thinned(kept[first:end], now, keeping, known)
    stay[0] = folded(kept[: first + 1], [first])[0]
    if len(stay) == end:
        return 0
    number = next(n for n in range(len(kept.blocks)) if kept.start(n) + kept.blocks[n].count >= end)
    found.dropped, found.more = end - len(stay), end < wanted
    found.remove += [path for block in kept.blocks[: number + 1] for path in block.paths]
    rest = kept.rows(number).slice(end - kept.start(number))
    found.tables += _cut(pa.concat_tables([rows_of(stay), rest]))
    return number + 1


def _first_kept(kept: Kept, floor: int) -> int:
    """The last mark at or before the floor: there is where reading begins."""
    return max(0, bisect_right(kept, floor, key=lambda mark: mark.time) - 1)


def _most(kept: Kept) -> int:
    """So many marks are looked into at once."""
    return max(MARKS_PER_FILE, ENTRIES_AT_ONCE // max(1, len(kept[-1].versions))) if kept else 0


def _runs(blocks: tuple[Block, ...], start: int, least: int) -> Iterator[list[int]]:
    """The numbers of neighbouring blocks that are small, where they are enough."""
    run: list[int] = []
    for number, block in enumerate(blocks, start):
        if block.count < MARKS_PER_FILE:
            run.append(number)
            continue
        if len(run) >= max(2, least):
            yield run
        run = []
    if len(run) >= max(2, least):
        yield run


def _cut(rows: pa.Table) -> Iterator[pa.Table]:
    """The marks in tables of the size of a file."""
    rows = rows.sort_by("epoch")
    entries = len(rows["versions"][-1].as_py())
    each = max(1, min(MARKS_PER_FILE, ENTRIES_PER_FILE // max(1, entries)))
    for start in range(0, rows.num_rows, each):
        yield rows.slice(start, each)


def young(path: str, epoch: int) -> bool:
    """Tell whether a file of marks, by its name, holds none from before this epoch."""
    named = layout.epoch_of(path)
    return named is not None and named >= epoch


def first_young(kept: Kept, moment: datetime) -> int:
    """The epoch from which on every mark was published after this moment, even if a clock was set back."""
    first = kept[-1].epoch + 1
    for number in reversed(range(len(kept.blocks))):
        rows = kept.rows(number)
        old = pc.indices_nonzero(pc.less_equal(rows["published_at"], pa.scalar(moment, TIMESTAMP)))
        if len(old):
            last = old[-1].as_py()
            return rows["epoch"][last + 1].as_py() if last + 1 < rows.num_rows else first
        first = rows["epoch"][0].as_py()
    return first
