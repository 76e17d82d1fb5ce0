"""The schema and the queue in it: made if they are missing, refused if they are not ours.

One transaction makes them, so two lakes make one queue. If the schema has its tables, the transaction locks
one of them, which takes the right to write it. If not, one of two that make them at once fails, and finds the
other's. Nothing here touches a table of the application (`triggers` does).
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.ddl import execute_ddl
from headrace.sources.postgres.session.refusals import AlreadyThere
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue.statements import (
    mending_statements,
    queue_statements,
    schema_statements,
    wholeness,
)
from headrace.sources.queue.trust import prove
from headrace.sources.queue.upstream import VERSION, Objects
from headrace.sources.shared.refusals import PrivilegeMissing, TableGone

_ATTEMPTS = 5  # to make a queue that others make or remove at the same time


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue as its row describes it."""

    incarnation: str
    version: int
    whole: bool  # the event tables are those that it was made with, and the sequence is there


@dataclass(frozen=True, slots=True)
class Schema:
    """The schema as the catalog has it."""

    exists: bool
    relations: frozenset[str]
    ours: bool  # we have the role that owns it

    @property
    def has_tables(self) -> bool:
        return frozenset(("queue", "tick", "reader", "tracked")) <= self.relations

    @property
    def is_foreign(self) -> bool:
        """Tell whether the schema belongs to another use: our tables are not all there, and others are."""
        return bool(self.relations) and not self.has_tables


def lock_creation(connection: Session, objects: Objects) -> None:
    """Let nobody else make or remove a queue, or triggers, in this schema until the transaction ends.

    Sessions that only read the table, as triggers do, neither wait nor delay us.
    """
    query(connection, f"LOCK TABLE {objects.queue} IN SHARE ROW EXCLUSIVE MODE".encode())


def read_schema(connection: Session, objects: Objects) -> Schema:
    """Look at the schema with everything in it; refuse objects that can't be trusted."""
    prove(connection, objects)
    rows = query(
        connection,
        "SELECT pg_catalog.pg_has_role(n.nspowner, 'USAGE'), c.relname FROM pg_catalog.pg_namespace n"
        " LEFT JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid"
        " AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S') WHERE n.nspname = %s",
        [objects.schema],
    )
    names = frozenset(name for _, name in rows if name is not None)
    return Schema(bool(rows), names, bool(rows) and rows[0][0])


def read_queue(connection: Session, objects: Objects) -> Queue | None:
    """The queue, None where there is none; the schema has its tables."""
    rows = query(
        connection,
        f"SELECT q.incarnation::text, q.version, {wholeness(objects)} FROM {objects.queue} q"
        " WHERE q.name = %s".encode(),
        [objects.name],
    )
    return Queue(*rows[0]) if rows else None


def find_queue(connection: Session, objects: Objects, schema: Schema) -> Queue | None:
    """The queue, None where there is none by now: its tables may have gone since the schema was looked at."""
    try:
        return read_queue(connection, objects) if schema.has_tables else None
    except TableGone:
        return None


def refuse_unusable(schema: Schema, queue: Queue | None, objects: Objects) -> None:
    """Raise where the schema is somebody else's, or of a version that we do not know."""
    if schema.is_foreign:
        raise Misconfigured(
            "QUEUE_SCHEMA_FOREIGN",
            f'the schema "{objects.schema}" holds other things than a queue',
            detail=", ".join(sorted(schema.relations)[:5]),
            hint="name another one, which headrace may make: schema = ...",
        )
    if queue is not None:
        refuse_version(queue, objects)


def refuse_version(queue: Queue, objects: Objects) -> None:
    """Raise where the queue is of a version that we do not know."""
    if queue.version == VERSION:
        return
    raise Misconfigured(
        "QUEUE_VERSION",
        f'the queue "{objects.name}" is of version {queue.version}, this headrace knows {VERSION}',
        hint="use a newer headrace"
        if queue.version > VERSION
        else "it is of before the first release: headrace drop of the headrace that made it removes it",
    )


def ensure_queue(connection: Session, objects: Objects) -> Queue:
    """Make sure that the queue exists; committed when this returns."""
    for _ in range(_ATTEMPTS - 1):
        try:
            return _ensure(connection, objects)
        except (AlreadyThere, TableGone):
            continue  # somebody made it meanwhile, or removed it
    return _ensure(connection, objects)


def _ensure(connection: Session, objects: Objects) -> Queue:
    with in_transaction(connection):
        schema = read_schema(connection, objects)
        if schema.has_tables:
            lock_creation(connection, objects)
            schema = read_schema(connection, objects)
        queue = read_queue(connection, objects) if schema.has_tables else None
        refuse_unusable(schema, queue, objects)
        if queue is None:
            for statement in creation_statements(schema, objects):
                _execute(connection, statement)
            queue = read_queue(connection, objects)
        elif not queue.whole:
            for statement in mending_statements(schema.relations, objects):
                _execute(connection, statement)
            queue = read_queue(connection, objects)
    assert queue is not None
    return queue


def creation_statements(schema: Schema, objects: Objects) -> list[str]:
    """The statements that make what is missing of a queue that is not there."""
    return [
        *([] if schema.exists else [f"CREATE SCHEMA {objects.quoted_schema}"]),
        *([] if schema.has_tables else schema_statements(objects)),
        *(f"DROP TABLE {table}" for table in _left_over(schema, objects)),
        *([f"DROP SEQUENCE {objects.current}"] if objects.current_name in schema.relations else []),
        *queue_statements(objects),
    ]


def _left_over(schema: Schema, objects: Objects) -> list[str]:
    """The event tables of a queue of this name whose row is gone: what they hold is of no stream."""
    named = zip(objects.events, objects.event_names, strict=True)
    return [table for table, name in named if name in schema.relations]


def _execute(connection: Session, statement: str) -> None:
    try:
        execute_ddl(connection, statement)
    except PrivilegeMissing as error:
        raise Misconfigured(
            "QUEUE_CREATION_PRIVILEGE",
            "the server does not let this user make the queue",
            detail=error.detail,
            hint="headrace check --sql prints the script for somebody who may run it",
        ) from None
