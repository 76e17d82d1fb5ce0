"""Removal: remove a lake from the queue, and the queue after its last lake. Nothing of ours is left then.

    a lake      its row, its tables; their triggers, if no other lake wants them
    the last    triggers, function, event tables, the shared tables if no other queue is there, the schema

Triggers are dropped one table at a time, in short attempts to get the lock (`triggers.patiently`). Only a
table's owner may drop its triggers. If we may not, we drop our function with all of them (CASCADE).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.ddl import execute_ddl
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue import readers
from headrace.sources.queue.capture import release_table
from headrace.sources.queue.creation import lock_creation, read_queue, read_schema
from headrace.sources.queue.statements import removal_statements, schema_removal_statements
from headrace.sources.queue.triggers import PATIENCE, table_names
from headrace.sources.queue.upstream import Objects, QueueUpstream
from headrace.sources.shared.refusals import LockTimeout, TableGone

_PAUSE = 0.2
_LOCK_TIMEOUT = "100ms"


def drop(address: PostgresAddress, upstream: QueueUpstream) -> list[str]:
    """Remove our lake from the queue, and the queue after its last lake; return the names for people."""
    with closing(connect(address, role="drop")) as connection:
        return drop_reader(connection, upstream)


def drop_other(address: PostgresAddress, upstream: QueueUpstream, lake: str) -> list[str]:
    """Remove another lake, which the queue must know; our own lake goes on."""
    if lake == upstream.lake:
        raise Misconfigured(
            "QUEUE_READER_OWN",
            f'"{lake}" is the reader of this very lake',
            hint="headrace drop, without --reader",
        )
    with closing(connect(address, role="drop")) as connection:
        return drop_reader(connection, replace(upstream, lake=lake), is_known=True)


def removable(address: PostgresAddress, upstream: QueueUpstream, other: str | None = None) -> list[str]:
    """The objects that `drop` or `drop_other` would remove now; nothing is changed."""
    lake, objects = other or upstream.lake, upstream.objects
    with closing(connect(address, role="drop")) as connection:
        if not read_schema(connection, objects).has_tables:
            return []
        tracked = _tracked_tables(connection, objects, lake)
        found = [f"triggers of {name}" for name in sorted(filter(None, tracked.values()))]
        lakes = {reader.lake for reader in readers.list_readers(connection, objects)}
        found += [f'reader "{lake}" of the queue "{objects.name}"'] if lake in lakes else []
        wanting = f"SELECT lake FROM {objects.tracked_name} WHERE queue = %s".encode()
        lakes |= {each for (each,) in query(connection, wanting, [objects.name])}
        if lakes <= {lake} and read_queue(connection, objects) is not None:
            found.append(f'queue "{objects.name}", with its tables')
        return found


def drop_reader(connection: Session, upstream: QueueUpstream, *, is_known: bool = False) -> list[str]:
    """Drop a reader over an open connection; with `is_known`, refuse a lake that the queue does not know."""
    try:
        return _dropped_reader(connection, upstream, known=is_known)
    except TableGone:
        if read_schema(connection, upstream.objects).has_tables:
            raise
        return []  # somebody else removed the queue meanwhile


def _dropped_reader(connection: Session, upstream: QueueUpstream, *, known: bool) -> list[str]:
    objects = upstream.objects
    if not read_schema(connection, objects).has_tables:
        return []
    lakes = [reader.lake for reader in readers.list_readers(connection, objects)]
    if known and upstream.lake not in lakes:
        raise Misconfigured(
            "QUEUE_READER_UNKNOWN",
            f'the queue "{objects.name}" has no reader "{upstream.lake}"',
            detail=f"it has {', '.join(lakes) or 'none'}",
            hint="headrace status names the readers",
        )
    removed = _release_all(connection, upstream)
    gone = query(
        connection,
        f"DELETE FROM {objects.reader} WHERE queue = %s AND lake = %s RETURNING lake".encode(),
        [objects.name, upstream.lake],
    )
    removed += [f'reader "{lake}" of the queue "{objects.name}"' for (lake,) in gone]
    return removed + _drop_queue(connection, objects)


def withdraw(connection: Session, upstream: QueueUpstream, *, queue: bool) -> None:
    """Undo a first run: remove this lake's entries, and the queue too if asked and no other lake uses it."""
    _release_all(connection, upstream)
    readers.leave(connection, upstream)
    if queue:
        _drop_queue(connection, upstream.objects)


def _release_all(connection: Session, upstream: QueueUpstream) -> list[str]:
    objects = upstream.objects
    names = _tracked_tables(connection, objects, upstream.lake)
    for oid, name in names.items():
        release_table(connection, objects, upstream.lake, (oid, name or TableName("", str(oid))))
    return [f"triggers of {name}" for name in sorted(filter(None, names.values()))]


def _tracked_tables(connection: Session, objects: Objects, lake: str) -> dict[int, TableName | None]:
    """The tables that a lake has captured, by oid; the name is None if a table is gone."""
    rows = query(
        connection,
        f"SELECT relation::int8 FROM {objects.tracked_name} WHERE queue = %s AND lake = %s".encode(),
        [objects.name, lake],
    )
    oids = sorted(oid for (oid,) in rows)
    names = table_names(connection, oids)
    return {oid: names.get(oid) for oid in oids}


def _drop_queue(connection: Session, objects: Objects) -> list[str]:
    """Remove the queue if no lake reads it, or wants a table captured."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with in_transaction(connection):
                query(connection, f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                if not read_schema(connection, objects).has_tables:
                    return []
                lock_creation(connection, objects)
                return _drop(connection, objects)
        except LockTimeout:
            if time.monotonic() > deadline:
                raise
        time.sleep(_PAUSE)


def _drop(connection: Session, objects: Objects) -> list[str]:
    wanted = query(
        connection,
        f"SELECT 1 FROM {objects.reader} WHERE queue = %(name)s"
        f" UNION ALL SELECT 1 FROM {objects.tracked_name} WHERE queue = %(name)s".encode(),
        {"name": objects.name},
    )
    if wanted or read_queue(connection, objects) is None:
        return []
    _run(connection, removal_statements(objects))
    removed = [f'queue "{objects.name}"']
    if not query(connection, f"SELECT 1 FROM {objects.queue} LIMIT 1".encode()):
        _run(connection, schema_removal_statements(objects))
        schema = read_schema(connection, objects)
        if schema.ours and not schema.relations:
            execute_ddl(connection, f"DROP SCHEMA {objects.quoted_schema}")
            removed.append(f'schema "{objects.schema}"')
    return removed


def _run(connection: Session, statements: Sequence[str]) -> None:
    for statement in statements:
        execute_ddl(connection, statement)
