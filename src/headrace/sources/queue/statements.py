"""The statements that make a queue in the source's schema: plain SQL and PL/pgSQL, no extension.

    queue    a queue: its incarnation, and which event table is current
    current  a sequence whose last value is the number of the current event table; only setval changes it
    tick     cuts: numbers, each with the snapshot under which it was taken
    reader   lakes, each with the tick that it has passed
    tracked  tables, by the lakes that want them captured
    event_*  three tables that the trigger writes to in turn
    capture  the one function of all triggers
    guard    the function that gives the queue a new incarnation if somebody changes or removes an event

The function writes the effect of a statement: whole rows as texts, -1 for removed rows, +1 for new ones. It
must never make the application's statement fail, nor run another role's code as us:

    names       Its body uses no search path. But temporary tables and types are always searched first. So a
                type that is no SQL keyword is written with its schema: else a temporary domain of the writer
                would run its CHECK as us.
                Somebody may put our function into a trigger without transition tables on his own table. Then
                a view of his session would be read in their place, as us. In that case it writes nothing.
                It casts no value of a table's own type: the type's owner may define the cast by a function,
                which would run as us. A row of a transition table has no named type. OLD and NEW have the
                table's type, and are printed by the server's own function.
                The columns of transition tables are unknown. So the body's own variables are written with
                the block's label, and a row is written `n.*`, which no column can be called.
    settings    Its SET clauses pin the settings that decide how values are printed, as for our own
                connections (`PINS` of `postgres.session.connection`). So copy and trigger print a value
                alike.
    plans       If a table is altered, the server makes plans over its transition tables anew.
    snapshots   It reads no table of the queue, since a writer's snapshot may be old.
    partitions  Rows of partitioned tables are written one by one: no statement trigger sees the rows of a
                MERGE that moves them between partitions (15 to 18). The trigger is the root's, and the server
                makes one like it on each partition. A row is written in its partition's layout, under the
                root's number. The catalog names the root, not an argument of the trigger: a user who may
                make a trigger could name another user's table.
    no rows     A statement that changed nothing writes nothing, and its transaction gets no id.
    sequences   It calls nextval on none: the session's lastval() belongs to the application.

Instead, an event's number comes from its place in the log: each event of a transaction is written before the
next one reads its place (`decode.queue.framing`). While a session waits for a lock, the log grows, so a
TRUNCATE has its place among all events of its table.

Applications pay most for statements on a single row. Each expression and function call costs, because all of
them are prepared anew for each transaction. So the columns have the server's own types for a place and a
transaction, and nothing is computed. The current event table is the last value of a sequence, which takes no
query. One condition guards all rare cases with their variables: rows of partitions, TRUNCATE, writes in a
transaction that truncates, sessions with temporary relations. `bench/trigger_queue.py` has the figures.

`queue.version` is the version of all these objects (`upstream.VERSION`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from headrace.core.names import quote_identifier
from headrace.sources.postgres.session.connection import PINS
from headrace.sources.queue.upstream import EVENT_TABLES, VERSION, Objects

GUARD = "headrace_guard"  # the trigger of event tables
_GUARD_TYPE = 2 | 8 | 16 | 32  # before DELETE, UPDATE, TRUNCATE: `pg_trigger.tgtype`
ROTATING = "headrace.rotating"  # a setting: the name of the event table that we are emptying

# The pinned settings that decide how a value is printed.
PRINTING = (
    "datestyle",
    "intervalstyle",
    "extra_float_digits",
    "timezone",
    "bytea_output",
    "lc_monetary",
    "search_path",
    "quote_all_identifiers",
)


def schema_statements(objects: Objects) -> list[str]:
    """The tables of a schema, which all queues in it share."""
    return [
        f"CREATE TABLE {objects.queue} (name text PRIMARY KEY, incarnation uuid NOT NULL,"
        " current smallint NOT NULL, version integer NOT NULL, made timestamptz NOT NULL,"
        " events oid[] NOT NULL, switched timestamptz NOT NULL)",
        f"CREATE TABLE {objects.tick} (queue text, tick bigint, taken timestamptz NOT NULL,"
        " snapshot pg_snapshot NOT NULL, nonce uuid NOT NULL, attached json,"
        " PRIMARY KEY (queue, tick))",
        f"CREATE TABLE {objects.reader} (queue text, lake text, tick bigint NOT NULL,"
        " seen timestamptz NOT NULL, PRIMARY KEY (queue, lake))",
        f"CREATE TABLE {objects.tracked_name} (queue text, lake text, relation oid,"
        " since timestamptz NOT NULL, PRIMARY KEY (queue, relation, lake))",
        exclusion((objects.queue, objects.tick, objects.reader, objects.tracked_name)),
    ]


def queue_statements(objects: Objects) -> list[str]:
    """Make one queue: its event tables, its function, and its row last."""
    return [
        _guard_function(objects),
        *(statement for table in objects.events for statement in _event_table(objects, table)),
        current_statement(objects),
        capture_function(objects),
        permission(objects),
        exclusion((*objects.events, objects.current)),
        f"INSERT INTO {objects.queue} (name, incarnation, current, version, made, switched, events)"
        f" VALUES ('{objects.name}', pg_catalog.gen_random_uuid(), 0, {VERSION}, pg_catalog.now(),"
        f" pg_catalog.now(), {_oids(objects)})",
    ]


def mending_statements(schema: Collection[str], objects: Objects) -> list[str]:
    """Make the queue's relations that are missing in the schema; the queue gets a new incarnation."""
    missing = [
        table for table, name in zip(objects.events, objects.event_names, strict=True) if name not in schema
    ]
    places = [] if objects.current_name in schema else [objects.current]
    return [
        "SET LOCAL lock_timeout = '100ms'",  # writers wait behind a session that waits for an event table
        _guard_function(objects),
        *(statement for table in missing for statement in _event_table(objects, table)),
        *(_guard(objects, table) for table in objects.events if table not in missing),
        *(current_statement(objects) for _ in places),
        exclusion((*missing, *places)),
        sharing(objects, (*missing, *places)),
        f"UPDATE {objects.queue} SET incarnation = pg_catalog.gen_random_uuid(),"
        f" events = {_oids(objects)} WHERE name = '{objects.name}'",
    ]


def current_statement(objects: Objects) -> str:
    """Make the sequence that holds the current event table's number; until it is set, that is the first."""
    return f"CREATE SEQUENCE {objects.current} MINVALUE 0 MAXVALUE {EVENT_TABLES - 1} START 0"


def current_place(objects: Objects) -> str:
    """An expression for the number of the current event table; NULL means the first one."""
    return f"pg_catalog.pg_sequence_last_value({_literal(objects.current)}::pg_catalog.regclass)"


def turning(objects: Objects) -> str:
    """The statement that switches writers to another event table; its parameter is the table's number."""
    return f"SELECT {_setting(objects, '%s')}"


def _setting(objects: Objects, number: str) -> str:
    return f"pg_catalog.setval({_literal(objects.current)}::pg_catalog.regclass, {number})"


def wholeness(objects: Objects) -> str:
    """An expression on the queue's row, `q`: event tables, sequence and guards are all there."""
    home = f"SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname = {_literal(objects.schema)}"
    return (
        f"(SELECT count(*) = pg_catalog.cardinality(q.events) + 1 FROM pg_catalog.pg_class c"
        f" WHERE c.relnamespace = ({home}) AND (c.oid = ANY (q.events) AND c.relkind = 'r'"
        f" AND c.relname = ANY (ARRAY[{', '.join(map(_literal, objects.event_names))}])"
        f" OR c.relname = {_literal(objects.current_name)} AND c.relkind = 'S'))"
        f" AND (SELECT count(*) = pg_catalog.cardinality(q.events) {_guards(objects)}"
        f" AND g.tgrelid = ANY (q.events))"
    )


def _guards(objects: Objects) -> str:
    """The triggers, `g`, that guard a table as they were made."""
    return (
        "FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_proc p ON p.oid = g.tgfoid"
        f" WHERE g.tgname = '{GUARD}' AND g.tgenabled = 'A' AND g.tgtype = {_GUARD_TYPE} AND g.tgqual IS NULL"
        f" AND p.proname = 'guard_{objects.name}' AND p.prosrc = {_literal(_guard_body(objects))}"
    )


def _oids(objects: Objects) -> str:
    return f"array[{', '.join(f'{_literal(table)}::pg_catalog.regclass::oid' for table in objects.events)}]"


def _event_table(objects: Objects, table: str) -> Iterator[str]:
    # Its rows are never updated or deleted, and it is emptied as a whole, so it needs no VACUUM.
    yield (
        f"CREATE TABLE {table} (id pg_lsn NOT NULL, tx xid8 NOT NULL, relation oid NOT NULL, leaf oid,"
        " diff smallint NOT NULL, row text)"
        " WITH (autovacuum_enabled = false, toast.autovacuum_enabled = false)"
    )
    yield f"CREATE INDEX ON {table} (tx)"
    yield from _guard_statements(objects, table)


def _guard_statements(objects: Objects, table: str) -> tuple[str, ...]:
    return (
        f"CREATE OR REPLACE TRIGGER {GUARD} BEFORE UPDATE OR DELETE OR TRUNCATE ON {table}"
        f" FOR EACH STATEMENT EXECUTE FUNCTION {objects.guard}()",
        f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {GUARD}",
    )


def _guard(objects: Objects, table: str) -> str:
    """Guard an existing event table without a guard; a guarded one is not locked."""
    made = "; ".join(_guard_statements(objects, table))
    found = f"SELECT {_guards(objects)} AND g.tgrelid = {_literal(table)}::pg_catalog.regclass"
    return f"DO $guarded$ BEGIN IF NOT EXISTS ({found}) THEN {made}; END IF; END $guarded$"


def _guard_function(objects: Objects) -> str:
    """The guard: only we may remove events. If somebody else does, the queue gets a new incarnation."""
    return f"""CREATE OR REPLACE FUNCTION {objects.guard}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = ''
AS $headrace${_guard_body(objects)}$headrace$"""


def _guard_body(objects: Objects) -> str:
    """The body of the guard's function, as `pg_proc.prosrc` has it."""
    return f"""
BEGIN
    IF TG_OP <> 'TRUNCATE'
        OR pg_catalog.current_setting('{ROTATING}', true) IS DISTINCT FROM TG_TABLE_NAME THEN
        -- On a table of somebody else's it says nothing.
        UPDATE {objects.queue} SET incarnation = pg_catalog.gen_random_uuid()
            WHERE name = '{objects.name}' AND TG_RELID = ANY (events);
    END IF;
    RETURN NULL;
END
"""


def removal_statements(objects: Objects) -> list[str]:
    """Remove one queue; dropping its function also drops triggers that only other users may drop."""
    return [
        f"DROP FUNCTION IF EXISTS {objects.function}() CASCADE",
        f"DROP SEQUENCE IF EXISTS {objects.current}",  # before the tables: writers lock them in this order
        *(f"DROP TABLE IF EXISTS {table}" for table in objects.events),
        f"DROP FUNCTION IF EXISTS {objects.guard}() CASCADE",
        *(
            f"DELETE FROM {table} WHERE {column} = '{objects.name}'"
            for table, column in (
                (objects.tick, "queue"),
                (objects.reader, "queue"),
                (objects.tracked_name, "queue"),
                (objects.queue, "name"),
            )
        ),
    ]


def schema_removal_statements(objects: Objects) -> list[str]:
    """Remove the tables of a schema without queues."""
    tables = (objects.tracked_name, objects.reader, objects.tick, objects.queue)
    return [f"DROP TABLE IF EXISTS {table}" for table in tables]


# Values of `diff`: a TRUNCATE has emptied the table; it is about to; it has, but a trigger of the application
# wrote rows in between, and nobody can tell whether before or after. (The lock keeps other transactions out.)
EMPTIED, BEGUN, UNCLEAR = 0, 2, 3

_PLACE_IN_LOG = "pg_catalog.pg_current_wal_insert_lsn()"
_WRITER = "pg_catalog.pg_current_xact_id_if_assigned()"
_TRUNCATING = "headrace.truncating"  # a setting of transactions that truncate, until they end

# --- the function ---------------------------------------------------------------------------------


def capture_function(objects: Objects) -> str:
    """The statement that makes the function of all triggers."""
    return (
        f"CREATE OR REPLACE FUNCTION {objects.function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER\n"
        + "\n".join(f"SET {name} = {_literal(PINS[name])}" for name in PRINTING)
        + f"\nAS $headrace${body(objects)}$headrace$"
    )


def exclusion(object_names: Sequence[str]) -> str:
    """The statement that revokes rights on new objects which default privileges have given to others.

    A user who may read events can read rows of all tables. One who may write events, or the readers' ticks,
    can forge rows.
    """
    return f"""DO $headrace$
DECLARE revoked record;
BEGIN
    FOR revoked IN
        SELECT DISTINCT made.oid::pg_catalog.regclass AS relation, given.grantee
          FROM pg_catalog.pg_class made, pg_catalog.aclexplode(made.relacl) given
         WHERE made.oid = ANY (ARRAY[{", ".join(map(_literal, object_names))}]::pg_catalog.regclass[])
           AND given.grantee <> made.relowner
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON TABLE %s FROM %s', revoked.relation,
            CASE revoked.grantee WHEN 0 THEN 'PUBLIC' ELSE revoked.grantee::pg_catalog.regrole::text END);
    END LOOP;
END
$headrace$"""


def sharing(objects: Objects, object_names: Sequence[str]) -> str:
    """Grant rights on new objects to all roles that have rights on the queue's row: lakes of other roles."""
    return f"""DO $headrace$
DECLARE shared record;
BEGIN
    FOR shared IN
        SELECT made.oid::pg_catalog.regclass AS relation, given.grantee::pg_catalog.regrole AS lake,
               CASE made.relkind WHEN 'S' THEN 'SELECT, UPDATE'
                    ELSE pg_catalog.string_agg(DISTINCT given.privilege_type, ', ') END AS rights
          FROM pg_catalog.pg_class made, pg_catalog.pg_class known,
               pg_catalog.aclexplode(known.relacl) given
         WHERE made.oid = ANY (ARRAY[{", ".join(map(_literal, object_names))}]::pg_catalog.regclass[])
           AND known.oid = {_literal(objects.queue)}::pg_catalog.regclass
           AND given.grantee NOT IN (0, known.relowner)
         GROUP BY made.oid, made.relkind, given.grantee
    LOOP
        EXECUTE pg_catalog.format('GRANT %s ON %s TO %s', shared.rights, shared.relation, shared.lake);
    END LOOP;
END
$headrace$"""


def permission(objects: Objects) -> str:
    """The statement that lets all users make partitions of a root that has our trigger.

    The server makes the trigger on a new partition with the rights of the user who makes the partition. To
    use the function elsewhere, a user also needs a right on its schema. The right is granted when the
    function is made, even if no root is mirrored: a later grant would alter the function, and so the triggers
    of all lakes.
    """
    return f"GRANT EXECUTE ON FUNCTION {objects.function}() TO PUBLIC"


def settings() -> dict[str, str]:
    """The settings of the function, as `pg_proc.proconfig` has them."""
    return {name: PINS[name] or '""' for name in PRINTING}


@cache
def body(objects: Objects) -> str:
    """The body of the function, as `pg_proc.prosrc` has it."""
    return f"""
<<capture>>
DECLARE
    place bigint;
BEGIN
    -- Without a query, as long as the session has no temporary relation.
    IF TG_LEVEL = 'ROW' OR TG_OP = 'TRUNCATE' OR pg_catalog.pg_my_temp_schema() <> 0
        OR pg_catalog.current_setting('{_TRUNCATING}', true) <> '' THEN
        <<rare>>
        DECLARE
            relation pg_catalog.oid := TG_RELID;
            leaf pg_catalog.oid;
            event pg_catalog.pg_lsn;
            emptied smallint := {BEGUN};
            mark varchar := 'headrace.truncate_' || TG_RELID;
        BEGIN
{_indent(_rare(objects), 12)}
        END;
    END IF;
{_indent(_write(objects, OPERATIONS), 4)}
    RETURN NULL;
END
"""


def _rare(objects: Objects) -> str:
    """Rows of partitions, TRUNCATE, and writes in a transaction that truncates.

    If it does not return, the code for every statement follows.
    """
    return f"""IF TG_OP = 'TRUNCATE' THEN
    PERFORM pg_catalog.pg_current_xact_id(); -- before it begins the transaction need not have an id
    event := {_PLACE_IN_LOG};
    IF TG_WHEN = 'AFTER' THEN
        emptied := CASE pg_catalog.current_setting(mark, true)
            WHEN 'written' THEN {UNCLEAR} ELSE {EMPTIED} END;
    END IF;
    PERFORM pg_catalog.set_config(mark, CASE TG_WHEN WHEN 'BEFORE' THEN 'begun' ELSE '' END, true);
    PERFORM pg_catalog.set_config('{_TRUNCATING}', 'yes', true);
{_indent(_write(objects, OF_TRUNCATE), 4)}
    RETURN NULL;
END IF;
IF TG_LEVEL = 'ROW' THEN
    IF TG_NAME <> '{objects.trigger(ROWS)}' THEN
        leaf := TG_RELID;
        relation := pg_catalog.pg_partition_root(TG_RELID);
        IF relation IS NULL OR TG_NAME <> '{objects.tree_prefix}' || relation THEN
            RETURN NULL; -- its root is part of another tree by now, whose trigger is here as well
        END IF;
    END IF;
    IF pg_catalog.current_setting(mark, true) = 'begun' THEN
        PERFORM pg_catalog.set_config(mark, 'written', true);
    END IF;
{_indent(_write(objects, OF_ROWS), 4)}
    RETURN NULL;
END IF;
IF pg_catalog.pg_my_temp_schema() <> 0 THEN
    IF coalesce(pg_catalog.to_regclass('pg_temp.old_rows'), pg_catalog.to_regclass('pg_temp.new_rows'))
        IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t
            WHERE t.tgrelid = TG_RELID AND t.tgname = TG_NAME
            AND coalesce(t.tgoldtable, '') = CASE TG_OP WHEN 'INSERT' THEN '' ELSE 'old_rows' END
            AND coalesce(t.tgnewtable, '') = CASE TG_OP WHEN 'DELETE' THEN '' ELSE 'new_rows' END) THEN
            RETURN NULL; -- somebody else's trigger, and a view of his by that name, which would run as us
        END IF;
    END IF;
END IF;
IF pg_catalog.current_setting(mark, true) = 'begun' THEN
    IF TG_OP = 'DELETE' THEN
        PERFORM FROM old_rows LIMIT 1;
    ELSE
        PERFORM FROM new_rows LIMIT 1;
    END IF;
    IF FOUND THEN
        PERFORM pg_catalog.set_config(mark, 'written', true);
    END IF;
END IF;"""


ROWS = "rows"  # the name of a trigger on the rows of a partition that is mirrored by itself

# By TG_OP: the sides to write, each with its diff, its row and its FROM clause.
_OLD = ("(-1)::pg_catalog.int2", "(o.*)::pg_catalog.text", " FROM old_rows o")
_NEW = ("1::pg_catalog.int2", "(n.*)::pg_catalog.text", " FROM new_rows n")
_OLD_ROW = ("(-1)::pg_catalog.int2", "pg_catalog.record_out(OLD)::pg_catalog.text", "")
_NEW_ROW = ("1::pg_catalog.int2", "pg_catalog.record_out(NEW)::pg_catalog.text", "")
_Sides = tuple[tuple[str, str, str], ...]
OPERATIONS: dict[str, _Sides] = {"UPDATE": (_OLD, _NEW), "INSERT": (_NEW,), "DELETE": (_OLD,)}
OF_ROWS: dict[str, _Sides] = {"UPDATE": (_OLD_ROW, _NEW_ROW), "INSERT": (_NEW_ROW,), "DELETE": (_OLD_ROW,)}
OF_TRUNCATE: dict[str, _Sides] = {"TRUNCATE": (("rare.emptied", "NULL", ""),)}


def _write(objects: Objects, operations: Mapping[str, _Sides]) -> str:
    """Code that writes events to the current event table."""
    lines = [f"place := {current_place(objects)};"]
    for number, (operation, sides) in enumerate(operations.items()):
        lines.append(f"{'ELSIF' if number else 'IF'} TG_OP = '{operation}' THEN")
        lines += (f"    {line}" for line in _places(objects, operation, sides))
    return "\n".join([*lines, "END IF;"])


def _places(objects: Objects, operation: str, sides: _Sides) -> Iterator[str]:
    """A branch for each event table; a sequence that was never set has no last value, and means the first."""
    for place in range(1, EVENT_TABLES):
        yield f"{'IF' if place == 1 else 'ELSIF'} place = {place} THEN"
        yield _insertion(objects, place, operation, sides)
    yield "ELSE"
    yield _insertion(objects, 0, operation, sides)
    yield "END IF;"


def _insertion(objects: Objects, place: int, operation: str, sides: _Sides) -> str:
    number = "rare.event" if operation == "TRUNCATE" else _PLACE_IN_LOG
    # The variables that the server gives to a trigger have the function's name as label.
    itself = f"{quote_identifier(objects.function_name)}.tg_relid, NULL::pg_catalog.oid"
    beneath = "rare.relation, rare.leaf"
    selected = (
        f"    SELECT {number}, {_WRITER}, {itself if origin else beneath}, {diff}, {row}{origin}"
        for diff, row, origin in sides
    )
    return (
        f"    INSERT INTO {objects.events[place]} (id, tx, relation, leaf, diff, row)\n"
        + "\n    UNION ALL\n".join(selected)
        + ";"
    )


def _indent(text: str, by: int) -> str:
    return "\n".join(f"{' ' * by}{line}" for line in text.split("\n"))


def _literal(text: str) -> str:
    """A string constant. It must hold no backslash: some settings give it another meaning."""
    return "'" + text.replace("'", "''") + "'"


# --- a table's triggers ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Trigger:
    """One of the triggers that a table has."""

    operations: tuple[str, ...]
    when: str = "AFTER"
    old_rows: bool = False
    new_rows: bool = False
    for_rows: bool = False
    root: int = 0  # the oid of the partitioned table that has it; 0 for any other table

    @property
    def type(self) -> int:
        """The bits of `pg_trigger.tgtype`."""
        bits = {"INSERT": 4, "DELETE": 8, "UPDATE": 16, "TRUNCATE": 32}
        kind = sum(bits[operation] for operation in self.operations)
        return kind | (2 if self.when == "BEFORE" else 0) | (1 if self.for_rows else 0)

    def name(self, objects: Objects) -> str:
        if self.root:
            return f"{objects.tree_prefix}{self.root}"
        operation = ROWS if self.for_rows else self.operations[0]
        return objects.trigger(operation if self.when == "AFTER" else f"before_{operation}")

    def statement(self, objects: Objects, table: str) -> str:
        """The statement that makes it on a table, whose name is quoted already."""
        tables = " ".join(
            f"{which} TABLE AS {which.lower()}_rows"
            for which, wanted in (("OLD", self.old_rows), ("NEW", self.new_rows))
            if wanted
        )
        referencing = f" REFERENCING {tables}" if tables else ""
        return (
            f"CREATE TRIGGER {quote_identifier(self.name(objects))} {self.when}"
            f" {' OR '.join(self.operations)} ON {table}{referencing}"
            f" FOR EACH {'ROW' if self.for_rows else 'STATEMENT'} EXECUTE FUNCTION {objects.function}()"
        )


_CHANGES = ("INSERT", "UPDATE", "DELETE")

# A TRUNCATE has two events. Triggers of the application may write between them, before or after the table is
# emptied: a row with an id in between may belong to either side.
_TRUNCATES = (Trigger(("TRUNCATE",), "BEFORE"), Trigger(("TRUNCATE",)))
TRIGGERS = (
    Trigger(("INSERT",), new_rows=True),
    Trigger(("UPDATE",), old_rows=True, new_rows=True),
    Trigger(("DELETE",), old_rows=True),
    *_TRUNCATES,
)
# A partition that is mirrored by itself: statements on its root fire none of its statement triggers.
OF_PARTITION = (Trigger(_CHANGES, for_rows=True), *_TRUNCATES)


def triggers_of(oid: int, *, is_partitioned: bool, partition: bool) -> tuple[Trigger, ...]:
    """The triggers of a table. The server copies a partitioned table's trigger to each partition, old or new.

    Its name has the root's number: a root that becomes part of another tree has that tree's trigger too.
    """
    if is_partitioned:
        return (Trigger(_CHANGES, for_rows=True, root=oid),)
    return OF_PARTITION if partition else TRIGGERS
