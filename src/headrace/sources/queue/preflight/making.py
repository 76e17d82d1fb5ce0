"""Preflight of the objects to be made: the schema, the queue in it, the triggers; by us, or by a user with
the rights.

Findings on objects that we will make are for information, with a script that does the same. Whoever runs the
script, our user owns the objects, so that the catalog looks the same. Then our user needs only SELECT on the
tables. A user who runs it must own the tables and be a member of our user's role.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.postgres.preflight.tables import Access
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.catalog.definitions import QueuedTable
from headrace.sources.queue.creation import (
    Schema,
    creation_statements,
    find_queue,
    read_schema,
    refuse_unusable,
)
from headrace.sources.queue.triggers import always_statements, trigger_statements
from headrace.sources.queue.upstream import Objects


def check_queue(connection: Session, objects: Objects) -> Iterator[Finding]:
    """Check that the queue exists, or can be made."""
    try:
        schema = read_schema(connection, objects)
    except Misconfigured as error:
        yield Finding(Level.ERROR, error)
        return
    readable = _readable(connection, objects) if schema.has_tables else ()
    if readable:
        yield _unreadable(connection, objects, readable)
        return
    queue = find_queue(connection, objects, schema)
    try:
        refuse_unusable(schema, queue, objects)
    except Misconfigured as error:
        yield Finding(Level.ERROR, error)
        return
    if queue is None:
        yield _to_be_made(connection, objects, schema)


def _to_be_made(connection: Session, objects: Objects, schema: Schema) -> Finding:
    script = tuple(creation_script(connection.info.user, objects, schema))
    if _may_create(connection, objects, schema):
        error = Misconfigured(
            "QUEUE_TO_BE_MADE",
            f'the queue "{objects.name}" will be made in the schema "{objects.schema}"',
            detail="four tables that all queues share, three tables of events, a sequence, two functions",
            hint="nothing to do; headrace check --sql prints the script, if somebody else is to run it",
        )
        return Finding(Level.INFO, error, then=script)
    error = Misconfigured(
        "QUEUE_CREATION_PRIVILEGE",
        f'the user "{connection.info.user}" may not make the queue in the schema "{objects.schema}"',
        hint="let somebody who may run what headrace check --sql prints",
    )
    return Finding(Level.ERROR, error, then=script)


def _may_create(connection: Session, objects: Objects, schema: Schema) -> bool:
    if schema.exists:
        question = "pg_catalog.has_schema_privilege(%s, 'CREATE')"
        about = objects.schema
    else:
        question, about = "pg_catalog.has_database_privilege(%s, 'CREATE')", connection.info.dbname
    [(may,)] = query(connection, f"SELECT {question}".encode(), [about])
    return bool(may)


def creation_script(user: str, objects: Objects, schema: Schema) -> list[str]:
    """The statements by which another user makes the queue for our user."""
    role = quote_identifier(user)
    made = [] if schema.exists else [f"CREATE SCHEMA {objects.quoted_schema} AUTHORIZATION {role}"]
    there = Schema(True, schema.relations, True)
    return [*made, f"SET ROLE {role}", *creation_statements(there, objects), "RESET ROLE"]


# --- a queue that another role owns ---------------------------------------------------------------


def _needs(objects: Objects) -> dict[str, str]:
    """The privileges that we need on the tables of an existing queue."""
    return {
        objects.queue: "SELECT, UPDATE",
        objects.tick: "SELECT, INSERT, DELETE",
        objects.reader: "SELECT, INSERT, UPDATE, DELETE",
        objects.tracked_name: "SELECT, INSERT, DELETE",
        **dict.fromkeys(objects.events, "SELECT, TRUNCATE"),
        objects.current: "SELECT, UPDATE",
    }


def _readable(connection: Session, objects: Objects) -> tuple[str, ...]:
    """The statements that grant the rights that we lack on the schema and its tables."""
    role = quote_identifier(connection.info.user)
    [(usage,)] = query(connection, "SELECT pg_catalog.has_schema_privilege(%s, 'USAGE')", [objects.schema])
    if not usage:
        granted = "SELECT, INSERT, UPDATE, DELETE, TRUNCATE"
        return (
            f"GRANT USAGE ON SCHEMA {objects.quoted_schema} TO {role}",
            f"GRANT {granted} ON ALL TABLES IN SCHEMA {objects.quoted_schema} TO {role}",
            f"GRANT SELECT, UPDATE ON ALL SEQUENCES IN SCHEMA {objects.quoted_schema} TO {role}",
            f"GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {objects.quoted_schema} TO {role}",
        )
    lacking = []
    for table, privileges in _needs(objects).items():
        # If the table does not exist yet, the answer is NULL.
        asked = [
            f"pg_catalog.has_table_privilege(pg_catalog.to_regclass(%s), '{each}')"
            for each in privileges.split(", ")
        ]
        [row] = query(connection, f"SELECT {', '.join(asked)}".encode(), [table] * len(asked))
        if False in row:
            lacking.append(f"GRANT {privileges} ON {table} TO {role}")
    functions = query(
        connection,
        "SELECT pg_catalog.has_function_privilege(p.oid, 'EXECUTE') FROM pg_catalog.pg_proc p"
        " JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"
        " WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0",
        [objects.schema, objects.function_name],
    )
    if functions == [(False,)]:
        lacking.append(f"GRANT EXECUTE ON FUNCTION {objects.function}() TO {role}")
    return tuple(lacking)


def _unreadable(connection: Session, objects: Objects, mend: tuple[str, ...]) -> Finding:
    error = Misconfigured(
        "QUEUE_PRIVILEGE",
        f'the user "{connection.info.user}" may not use the queue in the schema "{objects.schema}"',
        hint="; ".join(mend),
    )
    return Finding(Level.ERROR, error, mend=mend)


# --- triggers -------------------------------------------------------------------------------------


def check_triggers(
    connection: Session, objects: Objects, tables: Sequence[QueuedTable], rights: Mapping[int, Access]
) -> Iterator[Finding]:
    """Report the triggers that will be made, and those that only another user may make."""
    missing = [each for each in tables if each.triggers.flaw is not None]
    made = _may_trigger(connection, missing)
    for each in missing:
        if each not in made:
            yield _forbidden_finding(connection, objects, each)
    if made:
        yield _made_finding(objects, made)
    ours = {each.entry.oid for each in tables if rights[each.entry.oid].owner}
    foreign = [each.name for each in tables if each.entry.oid not in ours and not _always(each)]
    if foreign:
        yield _replica_role(objects, [each for each in tables if each.name in foreign])


def _always(table: QueuedTable) -> bool:
    return table.triggers.flaw is None and table.triggers.always


def _may_trigger(connection: Session, tables: Sequence[QueuedTable]) -> list[QueuedTable]:
    """Find the tables on which we may make triggers; for a root we need the right on each partition."""
    oids = {each.entry.oid: [each.entry.oid, *each.partitions] for each in tables}
    may: dict[int, bool] = dict(
        query(
            connection,
            "SELECT c.oid::int8, pg_catalog.has_table_privilege(c.oid, 'TRIGGER')"
            " FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])",
            [[oid for those in oids.values() for oid in those]],
        )
    )
    return [each for each in tables if all(may.get(oid, False) for oid in oids[each.entry.oid])]


def _forbidden_finding(connection: Session, objects: Objects, table: QueuedTable) -> Finding:
    error = Misconfigured(
        "QUEUE_TRIGGER_PRIVILEGE",
        f'the user "{connection.info.user}" may not make triggers on {table.name}',
        hint="let its owner run what headrace check --sql prints, or "
        f"GRANT TRIGGER ON {table.name} TO {quote_identifier(connection.info.user)}",
    )
    return Finding(Level.ERROR, error, table=table.name, then=_script(objects, table))


def _made_finding(objects: Objects, tables: Sequence[QueuedTable]) -> Finding:
    names = ", ".join(str(each.name) for each in tables[:10])
    more = f" and {len(tables) - 10} more" if len(tables) > 10 else ""
    error = Misconfigured(
        "QUEUE_TRIGGERS_TO_BE_MADE",
        f"triggers will be made on {len(tables)} table{'s' if len(tables) > 1 else ''}",
        detail=f"{names}{more}; each table waits for the writers of the moment, and tries again after 100 ms",
        hint="nothing to do; docs/queue.md says what they cost",
    )
    script = tuple(statement for each in tables for statement in _script(objects, each))
    return Finding(Level.INFO, error, tables=tuple(each.name for each in tables), then=script)


def _script(objects: Objects, table: QueuedTable) -> tuple[str, ...]:
    # Writers of the table wait behind a session that waits for its lock: give up soon, and run it again.
    return ("SET lock_timeout = '1s'", *trigger_statements(objects, table.name, table.triggers))


def _replica_role(objects: Objects, tables: Sequence[QueuedTable]) -> Finding:
    names = [each.name for each in tables]
    always = [
        statement for each in tables for statement in always_statements(objects, each.name, each.triggers)
    ]
    error = Misconfigured(
        "QUEUE_REPLICA_ROLE",
        "writes of sessions in the replica role are not captured of tables that are not ours",
        detail=", ".join(map(str, names[:10])),
        hint="let the owners run, once the triggers are there: ALTER TABLE ... ENABLE ALWAYS TRIGGER ...; "
        "else headrace verify finds what such sessions did",
    )
    return Finding(Level.WARNING, error, tables=tuple(names), then=tuple(always))
