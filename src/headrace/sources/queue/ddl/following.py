"""Following: tables whose columns changed since the last look, and their older rows.

    ColumnFollowing.look     in the look's transaction: when columns came and went (`column_times`)
                   .settle   after it, once a tick shows that the DDL is over: may rows have either layout?
                   .change   a change, with the proof that old rows become new ones, if there is one
                   .renew    the new record of a table with details that mean nothing to its rows

The proof for rows in the lake is the same as for PostgreSQL (`postgres.ddl.alteration.derive`). `layouts`
tells the rows of the stream apart. Neither needs column names, so several changes at once count as one.

No row says which types its columns had. The server changes some types in place, and only the column's row in
the catalog shows it. Such a type may print in another way than the type before it. So the table of an added
column is copied again if the column has such a type, its catalog row may have been rewritten, and rows with
it may have been written before that. The same holds for a known column if the way back is in place, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field

from headrace.sources.contract.values import Change, ColumnDerivation, TableDef
from headrace.sources.postgres.catalog import table_def
from headrace.sources.postgres.catalog.table_def import Attribute, TableEntry
from headrace.sources.postgres.ddl.alteration import Missing, derive, parts_of
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import readers, tick
from headrace.sources.queue.batch import TickBatch
from headrace.sources.queue.catalog.definitions import QueuedTable, definition, entry_of, to_details
from headrace.sources.queue.ddl import column_times
from headrace.sources.queue.ddl.column_times import Ddl
from headrace.sources.queue.decode import layouts, partitions
from headrace.sources.queue.decode.layouts import Columns, Doubt, Layouts
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.tick import Tick
from headrace.sources.queue.upstream import QueueUpstream
from headrace.sources.shared.refusals import LockTimeout


@dataclass(slots=True)
class ColumnFollowing:
    """The columns that came and went between two looks at tables."""

    upstream: QueueUpstream
    newest: Tick
    stop: int  # the look shows neither this transaction nor a later one
    ddl: Ddl
    passed_until: int  # the time up to which this lake has read
    now: Mapping[int, QueuedTable]
    moved_tables: Set[int] = (
        frozenset()
    )  # the tables, by oid, whose columns came, went, or were written again
    settled_tick: int | None = None  # a tick that was taken after the look
    unproven: set[str] = field(default_factory=set)  # the tables, by key, that may have ambiguous rows

    @classmethod
    def look(
        cls,
        connection: Session,
        upstream: QueueUpstream,
        sight: tick.Sight,
        last: Mapping[str, TableEntry],
        now: Mapping[int, QueuedTable],
    ) -> ColumnFollowing:
        """Find out when columns came and went; tables with unchanged columns cost no query."""
        newest = sight.tick
        assert newest is not None
        moved: dict[int, set[int]] = {}
        for before in last.values():
            table = now.get(before.oid)
            if table is not None and (numbers := _moved_columns(before, table.entry)):
                moved.setdefault(before.oid, set()).update(numbers)
        passed = readers.passed_tick(connection, upstream) if moved else None
        time = -1 if passed is None else upstream.log.time(passed)
        found = column_times.read(connection, upstream, newest, moved)
        return cls(upstream, newest, sight.stop, found, time, now, frozenset(moved))

    @property
    def end(self) -> int:
        """The time of the newest tick that the look shows."""
        return self.upstream.log.time(self.newest.number)

    def settle(self, connection: Session, records: Mapping[str, TableDef]) -> None:
        """Look for rows that may have either of two layouts, once a tick shows that the DDL is over.

        A table that has such rows is not followed, before any of its rows are rewritten in the lake.
        """
        for key, table in records.items():
            doubts = self._doubts(table)
            if self.settled_tick is None and any(doubt.until > self.end + 1 for doubt in doubts or ()):
                self._take(connection)
                doubts = self._doubts(table)
            if doubts is None or any(
                self._may_have_rows(connection, table.number, doubt) for doubt in doubts
            ):
                self.unproven.add(key)

    def _doubts(self, table: TableDef) -> Sequence[Doubt] | None:
        """The kinds of rows that would be ambiguous; None if their times are unknown."""
        found = self.now.get(table.number)
        if found is None or table.number not in self.moved_tables:
            return ()
        last, spans = entry_of(table.details), self.ddl.spans(self.upstream, table.number, self.settled_tick)
        later, retyped = self._layouts(last, table, found, {}), _retyped_columns(last, found.entry, self.ddl)
        if later is None or not spans.keys() >= set(retyped):
            return None
        behind = layouts.without(later, self.passed_until)
        later_ones = {n: self.ddl.ahead_of.get((table.number, n)) for n in retyped}
        return [
            *behind.doubts,
            *(doubt for n, one in later_ones.items() for doubt in behind.of_column(n, spans[n], one)),
        ]

    def _may_have_rows(self, connection: Session, oid: int, doubt: Doubt) -> bool:
        """Tell whether there may be such rows among those that this lake has not passed."""
        log, objects = self.upstream.log, self.upstream.objects
        low = log.tick(max(doubt.since, self.passed_until + 1))
        before, behind = (tick.find(connection, objects, each) for each in (low, log.tick(doubt.until)))
        if before is None or behind is None:
            return True
        return column_times.has_rows_of(
            connection, objects, TickBatch.between(before.snapshot, behind.snapshot), oid, doubt.count
        )

    def _take(self, connection: Session) -> None:
        # Without the lock: the second of the next two ticks shows it as well.
        with suppress(LockTimeout):
            self.settled_tick = tick.take(connection, self.upstream.objects).number

    def doubt(self, key: str) -> str | None:
        """Say why a table's rows may not have the columns that it has now; None if they do."""
        return (
            "a column may have been another one when its rows were written" if key in self.unproven else None
        )

    def change(self, what: str, key: str, recorded_table: TableDef, current: QueuedTable | None) -> Change:
        """The change of a table, with its derivation if it can be followed."""
        if current is None:
            return Change(what, None)
        followed = None if key in self.unproven else self._follow(what, recorded_table, current)
        return followed or Change(what, definition(current))

    def _follow(self, what: str, known: TableDef, found: QueuedTable) -> Change | None:
        last = entry_of(known.details)
        if found.triggers.flaw is not None or lives(last) != lives(found.entry):
            return None
        given = derive(last, found.entry, by_names=False)
        parts = parts_of(found.entry, given)
        if given is None or parts is None:
            return None
        missing = {
            attribute.number: each.text
            for attribute, each in zip(found.entry.columns, given, strict=True)
            if isinstance(each, Missing)
        }
        known_layouts = self._layouts(last, known, found, missing)
        beneath = partitions.from_details(known.details)
        tree, clones = found.entry.tree, found.triggers.clones
        if partitions.differs(beneath, found.partitions, clones, tree) is not None:
            return None
        moved = partitions.alter(beneath, found.partitions, tree, self.stop)
        if known_layouts is None or moved is None:
            return None
        until = self.upstream.log.position(TickPlace(self.ddl.ahead))
        now = definition(found, moved, layouts.without(known_layouts, self.passed_until))
        return Change(what, now, derivation=ColumnDerivation(parts, until, ()))

    def renew(self, last: TableEntry, recorded_table: TableDef, current: QueuedTable) -> TableDef:
        """The new record of a table whose rows keep their meaning; the lake types of its columns stay."""
        beneath = partitions.renew(
            partitions.from_details(recorded_table.details), current.partitions, current.entry.tree, self.stop
        )
        schema = table_def.as_shown(recorded_table.schema, current.entry)
        layout = self._layouts(last, recorded_table, current, {}) or layouts.from_details(
            recorded_table.details
        )
        return TableDef(recorded_table.name, current.entry.oid, schema, to_details(current, beneath, layout))

    def _layouts(
        self, last: TableEntry, known: TableDef, found: QueuedTable, missing: Mapping[int, str | None]
    ) -> Layouts | None:
        done = self.ddl.spans(self.upstream, last.oid, self.settled_tick)
        before, now = _columns(last), _columns(found.entry)
        return layouts.between(layouts.from_details(known.details), before, now, done, missing)


def lives(entry: TableEntry) -> list[str]:
    """The lives of triggers and function, with the other ways in which rows may change."""
    return [member.life for member in entry.memberships]


def _columns(entry: TableEntry) -> Columns:
    return Columns(tuple(attribute.number for attribute in entry.attributes), entry.width)


# A column can get one of these types without a rewrite of the table, though its values printed otherwise
# before: oid and the like from each other and from int, in any order; inet from cidr, and texts from xml. For
# other types `layouts.printed_otherwise` tells by the texts.
BY_NAME = frozenset((24, 26, 2202, 2203, 2204, 2205, 2206, 3734, 3769, 4089, 4096, 4191))
OTHERWISE = frozenset((25, 869, 1042, 1043))


def _retyped_columns(last: TableEntry, now: TableEntry, known: Ddl) -> list[int]:
    """The columns, by number, whose older rows may have another type and can still be read under this one."""
    before = {attribute.number: attribute for attribute in last.attributes}
    bases = {entry.oid: entry.base for entry in now.types}
    found = []
    for attribute in now.attributes:
        type_oid = attribute.type
        while bases.get(type_oid):
            type_oid = bases[type_oid]
        to_and_fro = type_oid in BY_NAME or type_oid in known.cast
        if (earlier := before.get(attribute.number)) is not None:
            doubtful = to_and_fro and _is_written_again(earlier, attribute)
        else:
            column = (now.oid, attribute.number)
            proven = column in known.as_added or (not to_and_fro and column in known.as_toasted)
            doubtful = (to_and_fro or type_oid in OTHERWISE) and not proven
        if doubtful:
            found.append(attribute.number)
    return found


def _is_written_again(before: Attribute, now: Attribute) -> bool:
    return bool(before.written_by) and before.written_by != now.written_by


def _moved_columns(last: TableEntry, now: TableEntry) -> set[int]:
    """The columns, by number, that came or went between two looks, or may have had another type."""
    added = set(range(last.width + 1, now.width + 1)) if last.width else set()
    later = {attribute.number: attribute for attribute in now.attributes}
    return added | {
        each.number
        for each in last.attributes
        if each.number not in later or _is_written_again(each, later[each.number])
    }
