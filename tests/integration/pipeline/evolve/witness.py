"""Judge marks that nobody looks at, by the source's contents at many positions while authors write.

author    statement ─ statement ─ statement ...
layouts       ▲           ▲           ▲          after each that is committed: columns, and the position
contents      ▲                       ▲          now and then

Between two marks that have a table, its columns are those of the later mark: the run that wrote them may have
looked at the table long before its stream came by the DDL. So contents count only if the columns of their
position were still those of the next mark; then its frontier lies between two layouts that are the same.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.lake.read.lake import Lake
from headrace.sources.postgres.position import Lsn
from headrace_testing.canonical import Rows, difference, lake_rows
from headrace_testing.oracle.registry import oracle_of
from tests.places import place_at

_LAYOUT = """
    SELECT attnum, attname, atttypid, atttypmod, pg_current_wal_insert_lsn()::text FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@dataclass(frozen=True, slots=True)
class Layout:
    """A table's columns at a position: number, name, type and modifier of each."""

    position: Lsn
    columns: tuple[tuple[object, ...], ...]


@dataclass
class Witness:
    """The witness of one table, in the session of its author; nobody else writes to the table."""

    url: str
    table: TableName
    connection: psycopg.Connection
    layouts: list[Layout] = field(default_factory=list)
    contents: list[tuple[Layout, Rows]] = field(default_factory=list)

    def look(self) -> None:
        """Note the columns, if no transaction is open."""
        if self.connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            found = self.connection.execute(_LAYOUT, [str(self.table)]).fetchall()
            self.layouts.append(Layout(Lsn.parse(found[0][-1]), tuple(each[:-1] for each in found)))

    def record(self) -> None:
        """Note the rows, too."""
        self.look()
        with oracle_of(self.url).moment(self.url) as moment:
            self.contents.append((self.layouts[-1], moment.rows(self.table)))

    def judge(self, lake: Lake) -> tuple[int, list[str]]:
        """Count the contents that the lake has at their position, and list what is wrong with any of them."""
        judged, wrong = 0, list[str]()
        marks = [mark for mark in lake.marks() if str(self.table) in mark.versions]
        altered = len({each.columns for each in self.layouts}) > 1
        for layout, rows in self.contents:
            position = int(layout.position)
            frontier = next(mark.time + 1 for mark in marks if mark.time + 1 >= position)
            if altered and position == frontier and sum(mark.time + 1 == frontier for mark in marks) > 1:
                continue  # right at a border: it may have the columns of either side
            with suppress(HeadraceError):  # nothing leads from the next mark that has the table to here
                have = lake.at(position=place_at(position)).arrow(str(self.table))
                if {each.columns for each in self._between(position, frontier)} == {layout.columns}:
                    judged += 1
                    wrong += _differing(layout, lake_rows(have), rows)
        return judged, wrong

    def _between(self, position: int, frontier: int) -> list[Layout]:
        """The layouts from a position to the first at or behind a frontier."""
        positions = [int(each.position) for each in self.layouts]
        return self.layouts[bisect_left(positions, position) : bisect_left(positions, frontier) + 1]


def _differing(layout: Layout, have: Rows, want: Rows) -> list[str]:
    if sorted(have.names) != sorted(want.names):
        return [f"{layout.position}: columns {have.names} for {want.names}"]
    rest = difference(have.frame, want.select(have.names).frame)
    return [f"{layout.position}: {rest}"] if rest.height else []
