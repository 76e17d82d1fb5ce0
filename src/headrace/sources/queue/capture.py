"""Capture: which tables have our triggers, for which lake.

    examine    are the tables fit?
    capture    make the triggers; committed ─► as `define`
    define     the very same tables (by oid), while all of their changes are captured
    release    stop to capture a table for this lake; remove its triggers if no other lake wants it

Making a trigger waits for the transactions that are writing its table. So every later transaction is captured
whole. If somebody altered the triggers or the function, `capture` puts that right. Only a table's owner may
remove its triggers: where we may not, they stay, and nobody reads what they write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from headrace.core.errors import Definite, HeadraceError, PositionLost
from headrace.core.names import TableName
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import ALONE, ExaminedTables, TableDef, Waiting
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.copy.table_access import overtaken
from headrace.sources.postgres.ddl.alteration import differs
from headrace.sources.postgres.preflight.roots import inside_root, leaves_held, outside_roots
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import tick
from headrace.sources.queue.catalog.definitions import (
    QueuedTable,
    definition,
    entry_of,
    find_tables,
    read_tables,
)
from headrace.sources.queue.creation import read_schema
from headrace.sources.queue.preflight.fitness import unfit_tables
from headrace.sources.queue.triggers import (
    PATIENCE,
    Triggers,
    drop_triggers,
    make_triggers,
    patiently,
    read_triggers,
    table_names,
)
from headrace.sources.queue.upstream import Objects, QueueUpstream

_MOMENT = 0.3  # seconds, if no session may wait for us


class CaptureGap(Definite, PositionLost):
    """Changes of a table may be missing in the queue."""

    codes = ("QUEUE_TABLE_UNCAPTURED",)


def examine(connection: Session, upstream: QueueUpstream, names: Sequence[TableName]) -> ExaminedTables:
    """Read the tables before they have triggers."""
    found = find_tables(connection, upstream.objects, names)
    entries = [each.entry for each in found]
    errors = unfit_tables(connection, entries)
    return _examine(found, errors | _overlapping(connection, upstream, entries))


def _overlapping(
    connection: Session, upstream: QueueUpstream, entries: Sequence[TableEntry]
) -> dict[TableName, HeadraceError]:
    """Find the tables whose rows this lake would have under two names."""
    there = read_schema(connection, upstream.objects).has_tables
    tracked = _tracked_tables(connection, upstream) if there else frozenset()
    _, inside = outside_roots(entries, [entry.name for entry in entries])
    inside += [inside_root(entry.name, None) for entry in entries if not tracked.isdisjoint(entry.ancestors)]
    errors = {name: finding.error for finding in inside for name in finding.concerned_tables}
    new = {entry.name: entry for entry in entries if entry.oid not in tracked}
    by_leaf = {name: [each.name for each in entry.tree if each.oid in tracked] for name, entry in new.items()}
    return errors | {name: leaves_held(name, those) for name, those in by_leaf.items() if those}


def capture(
    connection: Session, upstream: QueueUpstream, names: Sequence[TableName], waiting: Waiting = ALONE
) -> ExaminedTables:
    """Make sure that the tables have our triggers; committed when this returns.

    A table that another session holds comes with an error; the others get their triggers all the same. Only
    the first table is waited for at length.
    """
    objects = upstream.objects
    busy: dict[TableName, HeadraceError] = {}
    for table in find_tables(connection, objects, names):
        try:
            seconds = _MOMENT if busy else PATIENCE
            _capture(connection, upstream, (table.entry.oid, table.name), waiting, seconds)
        except TableBusy as error:
            busy[table.name] = error
    looked = tick.last(connection, objects)
    there = [name for name in names if name not in busy]
    found = _capture_check(connection, find_tables(connection, objects, there), looked)
    return ExaminedTables(found.defs, {**found.errors, **busy})


def define(connection: Session, upstream: QueueUpstream, tables: Iterable[TableDef]) -> ExaminedTables:
    """Read the very same tables again; one that is not wholly captured comes with an error.

    A table must not have changed since it was looked at: the stream began in between, and has rows of that
    time.
    """
    known = {table.number: entry_of(table.details) for table in tables}
    looked = tick.last(connection, upstream.objects)
    found = read_tables(connection, upstream.objects, list(known))
    for each in found:
        # Its triggers were not there yet.
        last = replace(known[each.entry.oid], memberships=each.entry.memberships)
        if (what := differs(last, each.entry, by_triggers=True)) is not None:
            raise overtaken(f"{each.name} changed after it was looked at: {what}")
    return _capture_check(connection, found, looked)


def _capture(
    connection: Session,
    upstream: QueueUpstream,
    table: tuple[int, TableName],
    waiting: Waiting,
    seconds: float,
) -> None:
    objects, (oid, name) = upstream.objects, table

    def attempt() -> None:
        make_triggers(connection, objects, oid, name)
        query(
            connection,
            f"INSERT INTO {objects.tracked_name} (queue, lake, relation, since)"
            " VALUES (%s, %s, %s, pg_catalog.now()) ON CONFLICT DO NOTHING".encode(),
            [objects.name, upstream.lake, oid],
        )

    patiently(connection, objects, table, attempt, waiting, seconds)


def _capture_check(connection: Session, found: Sequence[QueuedTable], looked: int) -> ExaminedTables:
    """The tables as they are since before a tick was the newest."""
    tables = [replace(each, look_tick=looked) for each in found]
    flaws = {
        each.name: uncaptured_error(each.name, each.triggers.flaw) for each in tables if each.triggers.flaw
    }
    # Check again: a table may have changed since it was examined.
    return _examine(tables, {**unfit_tables(connection, [each.entry for each in tables]), **flaws})


def uncaptured_error(name: TableName, detail: str | None) -> CaptureGap:
    """The error of a table whose triggers are not what they should be."""
    return CaptureGap(
        "QUEUE_TABLE_UNCAPTURED",
        f"not all changes of {name} are captured",
        detail=detail,
        hint=f"headrace tables resync {name}",
    )


def _examine(tables: Sequence[QueuedTable], errors: dict[TableName, HeadraceError]) -> ExaminedTables:
    return ExaminedTables({each.name: definition(each) for each in tables}, errors)


# --- the captured tables ------------------------------------------------------------------------


def captured_tables(connection: Session, upstream: QueueUpstream) -> frozenset[TableName]:
    """The tables that this lake wants captured, and that exist."""
    return frozenset(table_names(connection, sorted(_tracked_tables(connection, upstream))).values())


def _tracked_tables(connection: Session, upstream: QueueUpstream) -> frozenset[int]:
    objects = upstream.objects
    rows = query(
        connection,
        f"SELECT relation::int8 FROM {objects.tracked_name} WHERE queue = %s AND lake = %s".encode(),
        [objects.name, upstream.lake],
    )
    return frozenset(oid for (oid,) in rows)


def release(connection: Session, upstream: QueueUpstream, names: Sequence[TableName]) -> None:
    """Stop to capture these tables for this lake."""
    for oid, name in table_names(connection, sorted(_tracked_tables(connection, upstream))).items():
        if name in names:
            release_table(connection, upstream.objects, upstream.lake, (oid, name))


def release_now(connection: Session, upstream: QueueUpstream, oids: Collection[int]) -> None:
    """Release tables, whatever their names are by now; give up at once on a table that somebody holds."""
    names = table_names(connection, sorted(oids))
    for oid in sorted(oids):
        table = (oid, names.get(oid, TableName("", str(oid))))
        release_table(connection, upstream.objects, upstream.lake, table, _MOMENT)


def release_table(
    connection: Session, objects: Objects, lake: str, table: tuple[int, TableName], seconds: float = PATIENCE
) -> bool:
    """Release a table for one lake; False if triggers stay because only the table's owner may drop them."""
    oid, _ = table

    def attempt() -> bool:
        query(
            connection,
            f"DELETE FROM {objects.tracked_name} WHERE queue = %s AND lake = %s AND relation = %s".encode(),
            [objects.name, lake, oid],
        )
        others = query(
            connection,
            f"SELECT 1 FROM {objects.tracked_name} WHERE queue = %s AND relation = %s LIMIT 1".encode(),
            [objects.name, oid],
        )
        return bool(others) or drop_triggers(connection, objects, oid)

    return patiently(connection, objects, table, attempt, seconds=seconds)


def with_inactive_triggers(connection: Session, upstream: QueueUpstream) -> list[TableName]:
    """The tables whose triggers don't fire in sessions of the replica role: we may not alter the tables."""
    return _where(connection, upstream, lambda triggers: not triggers.always)


def half_triggered(connection: Session, upstream: QueueUpstream) -> list[TableName]:
    """The tables that are not wholly captured now; the next mark's look puts them right."""
    return _where(connection, upstream, lambda triggers: triggers.flaw is not None)


def _where(
    connection: Session, upstream: QueueUpstream, wanted: Callable[[Triggers], bool]
) -> list[TableName]:
    oids = sorted(_tracked_tables(connection, upstream))
    triggers = read_triggers(connection, upstream.objects, oids)
    names = table_names(connection, oids)
    return sorted(name for oid, name in names.items() if wanted(triggers[oid]))
