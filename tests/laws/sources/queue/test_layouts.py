"""The laws of layouts: whatever came and went between two looks, a row is read under its columns or not."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.records import to_record
from headrace.sources.queue.batch import TxidSnapshot
from headrace.sources.queue.ddl.column_times import TickInterval, moment_of
from headrace.sources.queue.decode import layouts
from headrace.sources.queue.decode.layouts import Columns, DdlSpan, Layouts

Row = tuple[int, tuple[int, ...]]  # its time, its columns


@dataclass
class Table:
    """A table that is altered between rows, and looked at between ticks."""

    numbers: list[int]
    width: int
    time: int = 1
    rows: list[Row] = field(default_factory=list)
    done: dict[int, DdlSpan] = field(default_factory=dict)
    known: Layouts = field(default_factory=lambda: Layouts(()))
    last: Columns = field(default_factory=lambda: Columns((), 0))

    @classmethod
    def made(cls, width: int) -> Table:
        table = cls(list(range(1, width + 1)), width)
        table.known, table.last = Layouts((layouts.QueueLayout(tuple(table.numbers)),)), table.columns
        return table

    @property
    def columns(self) -> Columns:
        return Columns(tuple(self.numbers), self.width)

    def step(self, what: int, loose: int) -> None:
        """A row, a tick, a column more or one less, of which the ticks around are known more or less well."""
        span = DdlSpan(self.time - 1 - loose, self.time + loose)
        if what == 0:
            self.rows.append((self.time, tuple(self.numbers)))
        elif what == 1:
            self.time += 1
        elif what == 2:
            self.width += 1
            self.numbers.append(self.width)
            self.done[self.width] = span
        elif len(self.numbers) > 1:
            self.done[self.numbers.pop(what % len(self.numbers))] = span

    def look(self) -> bool:
        """Take what a look shows; False where it is too much."""
        found = layouts.between(self.known, self.last, self.columns, self.done, {})
        if found is None:
            return False
        self.known, self.last, self.done = found, self.columns, {}
        return True


_steps = st.lists(st.tuples(st.sampled_from([0, 0, 0, 1, 1, 2, 3, 4, 5]), st.integers(0, 1)), max_size=14)


@given(st.integers(1, 4), st.lists(_steps, min_size=1, max_size=3))
def test_a_row_is_of_its_own_layout_or_of_none(width: int, looks: list[list[tuple[int, int]]]) -> None:
    table = Table.made(width)
    for steps in looks:
        for what, loose in steps:
            table.step(what, loose)
        if not table.look():
            return
        times, counts = (
            np.array(values, np.int64)
            for values in ([time for time, _ in table.rows], [len(there) for _, there in table.rows])
        )
        found = table.known.of_rows(counts.astype(np.int32), times).tolist()
        read = [None if place < 0 else table.known.layouts[place].numbers for place in found]
        assert all(given in (None, there) for given, (_, there) in zip(read, table.rows, strict=True))
        doubts = table.known.doubts
        for given_, (time, there) in zip(read, table.rows, strict=True):
            doubtful = any(d.count == len(there) and d.since <= time < d.until for d in doubts)
            assert (given_ is None) == doubtful


def test_columns_that_came_alone_or_went_alone_leave_no_doubt() -> None:
    here = Layouts((layouts.QueueLayout((1, 2, 3)),))
    loose = DdlSpan(-1, 99)
    came = layouts.between(
        here, Columns((1, 2, 3), 3), Columns((1, 2, 3, 4, 5), 5), {4: loose, 5: loose}, {4: "7", 5: None}
    )
    went = layouts.between(here, Columns((1, 2, 3), 3), Columns((1, 3), 3), {2: loose}, {})
    for each in (came, went):
        assert each is not None
        assert each.doubts == []
        assert layouts.from_details({layouts.KEY: json.loads(json.dumps(to_record(each)))}) == each
    assert came is not None
    assert came.missing == {4: "7", 5: None}


def test_a_column_that_came_where_another_went_is_told_by_ticks_alone() -> None:
    here, before, now = Layouts((layouts.QueueLayout((1, 2)),)), Columns((1, 2), 2), Columns((1, 3), 3)
    found = layouts.between(here, before, now, {2: DdlSpan(7, 15), 3: DdlSpan(7, 15)}, {3: None})
    assert found is not None
    times = np.array([7, 8, 15, 16], np.int64)
    read = found.of_rows(np.full(4, 2, np.int32), times).tolist()
    assert [place if place < 0 else found.layouts[place].numbers for place in read] == [
        (1, 2),
        -1,
        -1,
        (1, 3),
    ]


def test_nothing_is_said_of_columns_of_which_nobody_knows_when_they_went() -> None:
    here, before = Layouts((layouts.QueueLayout((1, 2)),)), Columns((1, 2), 2)
    assert layouts.between(here, before, Columns((1,), 2), {}, {}) is None
    many = tuple(range(1, 11))
    done = {number: DdlSpan(0, 9) for number in many}
    wide = Layouts((layouts.QueueLayout(many),))
    assert layouts.between(wide, Columns(many, 10), Columns((1, 2), 10), done, {}) is None


def test_a_transaction_is_seen_by_the_tick_that_shows_its_end() -> None:
    ticks = [
        (4, TxidSnapshot(90, 95, (90,))),  # it had not begun
        (5, TxidSnapshot(90, 110, (90, 100))),  # it ran
        (6, TxidSnapshot(90, 112, (90,))),  # it had ended, beside one that is older
        (7, TxidSnapshot(113, 113, ())),
    ]
    assert moment_of(100, ticks) == TickInterval(5, 6)
    # It may be a subtransaction of the older one.
    assert moment_of(105, ticks) == TickInterval(4, 7)
    assert moment_of(113, ticks) == TickInterval(7, None)
    assert moment_of(80, ticks) == TickInterval(0, 4)
