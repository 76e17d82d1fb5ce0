"""The triggers of a table: read, make, drop; one table at a time, so that no session waits long for us.

    read_triggers    all that call our function, or have our names ─► `Triggers`: their flaw, their lives
    make_triggers    those of the table's kind (`statements.triggers_of`), ENABLE ALWAYS if we own the table
    drop_triggers    all of them

A partitioned table has one trigger, and each table beneath it has one like it, a `Clone`. The server makes,
renames and drops clones with the trigger, or when a table is attached and detached. A trigger that somebody
disabled or altered is a flaw.

Making a trigger takes a lock that waits for the transactions that write the table. So every later transaction
is captured whole; but new writers wait behind us. So each attempt gives up after a moment, and the next one
comes after a growing pause (`patiently`). Two triggers that call the function would capture a change twice.
So every trigger that calls it counts, whatever its name is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.values import ALONE, Waiting
from headrace.sources.postgres.catalog.locks import PUBLISHERS_WAIT_FOR, holders, locked_error
from headrace.sources.postgres.copy.table_access import overtaken
from headrace.sources.postgres.session.ddl import execute_ddl
from headrace.sources.postgres.session.statements import Session, in_transaction, query
from headrace.sources.queue.creation import lock_creation
from headrace.sources.queue.decode.partitions import Clone
from headrace.sources.queue.statements import (
    TRIGGERS,
    Trigger,
    body,
    capture_function,
    permission,
    settings,
    triggers_of,
)
from headrace.sources.queue.upstream import Objects
from headrace.sources.shared.refusals import LockTimeout, PrivilegeMissing, TableGone

T = TypeVar("T")

_LOCK_TIMEOUT = "100ms"  # writers may wait behind us for so long
_PAUSES = (0.05, 2.0)  # between two attempts: the first, and the longest
PATIENCE = 20.0  # seconds, by default
_WRITERS = (*PUBLISHERS_WAIT_FOR, "RowExclusiveLock")
_ALWAYS, _ORIGIN = "A", "O"  # pg_trigger.tgenabled


@dataclass(frozen=True, slots=True)
class Triggers:
    """Our triggers on one table, as the catalog has them."""

    expected_triggers: tuple[Trigger, ...]
    names: tuple[str, ...]  # of all triggers that call our function
    flaw: str | None  # why changes are not captured, or captured twice
    always: bool  # sessions in the replica role are captured too
    life: str  # a text that changes with every change of the triggers or the function
    clones: Mapping[int, Clone] = field(default_factory=dict)  # for a root: by the table beneath it


# Only columns of the catalog: catalog functions would look at another moment than the statement.
_TRIGGERS = """
SELECT t.tgrelid::int8, t.tgname, t.tgenabled::text, t.tgtype::int, t.tgoldtable::text, t.tgnewtable::text,
       t.tgfoid = f.oid AND t.tgqual IS NULL AND t.tgnargs = 0 AND t.tgattr::text = '',
       t.tgfoid = f.oid, concat_ws(' ', t.oid, t.xmin)
  FROM pg_catalog.pg_trigger t, (
       SELECT p.oid FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = %(schema)s AND p.proname = %(function)s AND p.pronargs = 0) f
 WHERE t.tgrelid = ANY (%(oids)s::oid[]) AND NOT t.tgisinternal AND t.tgparentid = 0
   AND (t.tgfoid = f.oid OR t.tgname = ANY (%(names)s::text[]))
 ORDER BY t.tgname
"""


def read_triggers(connection: Session, objects: Objects, oids: Sequence[int]) -> dict[int, Triggers]:
    """Read our triggers on these tables, by oid; each table is in the answer."""
    function = _read_function(connection, objects)
    wanted = _wanted_triggers(connection, oids)
    found: dict[int, list[_Row]] = {oid: [] for oid in oids}
    names = {trigger.name(objects) for each in wanted.values() for trigger in each}
    parameters = {"schema": objects.schema, "function": objects.function_name, "oids": list(oids)}
    for oid, *row in query(connection, _TRIGGERS, {**parameters, "names": list(names)}, prepare=True):
        found[oid].append(_Row(*row))
    roots = [oid for oid, each in wanted.items() if each[0].root]
    clones = _clones(connection, objects, roots) if roots else {}
    return {
        oid: _triggers(objects, wanted[oid], rows, function, clones.get(oid, ()))
        for oid, rows in found.items()
    }


def _wanted_triggers(connection: Session, oids: Sequence[int]) -> dict[int, tuple[Trigger, ...]]:
    rows = query(
        connection,
        "SELECT c.oid::int8, c.relkind = 'p', c.relispartition"
        " FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])",
        [list(oids)],
        prepare=True,
    )
    kinds = {oid: triggers_of(oid, is_partitioned=root, partition=part) for oid, root, part in rows}
    return {oid: kinds.get(oid, TRIGGERS) for oid in oids}


@dataclass(frozen=True, slots=True)
class _Row:
    name: str
    firing: str  # pg_trigger.tgenabled
    type: int
    old_rows: str | None
    new_rows: str | None
    plain: bool  # it calls our function, whatever the row and with no arguments
    calls: bool  # it calls our function
    life: str


@dataclass(frozen=True, slots=True)
class _Function:
    flaw: str | None
    life: str


def _triggers(
    objects: Objects,
    expected: tuple[Trigger, ...],
    rows: Sequence[_Row],
    function: _Function,
    clones: Sequence[_ClonedTrigger],
) -> Triggers:
    known = {row.name: row for row in rows}
    wanted = {trigger.name(objects): trigger for trigger in expected}
    flaws = [_flaw(name, trigger, known.get(name)) for name, trigger in wanted.items()]
    flaws += [f'trigger "{name}" captures once more' for name in known if name not in wanted]
    flaws += [each.flaw for each in clones]
    return Triggers(
        expected_triggers=expected,
        names=tuple(row.name for row in rows if row.calls or row.name in wanted),
        flaw=next((flaw for flaw in (function.flaw, *flaws) if flaw is not None), None),
        always={each.firing for each in rows} | {each.firing for each in clones} <= {_ALWAYS},
        life="; ".join([function.life, *(f"{row.life} {row.firing}" for row in rows)]),
        clones={each.table: Clone(f"{each.life} {each.firing}", each.by or 0) for each in clones},
    )


def _flaw(name: str, wanted: Trigger, row: _Row | None) -> str | None:
    if row is None:
        return f'trigger "{name}" is missing'
    if row.firing not in (_ALWAYS, _ORIGIN):
        return f'trigger "{name}" is disabled'
    shape = (wanted.type, "old_rows" if wanted.old_rows else None, "new_rows" if wanted.new_rows else None)
    if not row.plain or (row.type, row.old_rows, row.new_rows) != shape:
        return f'trigger "{name}" is not as headrace made it'
    return None


# --- beneath a root -------------------------------------------------------------------------------

_CLONES = """
WITH RECURSIVE beneath(root, oid) AS (
    SELECT i.inhparent, i.inhrelid FROM pg_catalog.pg_inherits i WHERE i.inhparent = ANY (%(roots)s::oid[])
    UNION ALL
    SELECT b.root, i.inhrelid FROM beneath b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid)
SELECT b.root::int8, b.oid::int8, n.nspname, c.relname, t.tgenabled::text, t.tgparentid <> 0,
       concat_ws(' ', t.oid, t.xmin),
       -- A later command of the same transaction that altered it left a later number in its row.
       CASE WHEN t.xmax = '0' AND t.cmin::text::int8 <= (
                SELECT min(d.cmin::text::int8) FROM pg_catalog.pg_depend d
                 WHERE d.classid = 'pg_catalog.pg_trigger'::pg_catalog.regclass AND d.objid = t.oid
                   AND d.objsubid = 0 AND d.xmin = t.xmin)
            THEN t.xmin::text::int8 END
  FROM beneath b JOIN pg_catalog.pg_class c ON c.oid = b.oid
  JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  LEFT JOIN pg_catalog.pg_trigger t ON t.tgrelid = b.oid AND NOT t.tgisinternal
                                   AND t.tgname = %(prefix)s || b.root::text
"""


@dataclass(frozen=True, slots=True)
class _ClonedTrigger:
    root: int
    table: int
    schema: str
    name: str
    firing: str | None  # pg_trigger.tgenabled
    is_clone: bool | None
    life: str
    by: int | None

    @property
    def flaw(self) -> str | None:
        if self.firing in (_ALWAYS, _ORIGIN) and self.is_clone:
            return None
        return f"the trigger of its partition {TableName(self.schema, self.name)} is missing or disabled"


def _clones(connection: Session, objects: Objects, roots: Sequence[int]) -> dict[int, list[_ClonedTrigger]]:
    found: dict[int, list[_ClonedTrigger]] = {}
    parameters = {"roots": list(roots), "prefix": objects.tree_prefix}
    for row in query(connection, _CLONES, parameters, prepare=True):
        found.setdefault(row[0], []).append(_ClonedTrigger(*row))
    return found


_FUNCTION = """
SELECT p.prosrc, p.prosecdef, p.proconfig, l.lanname, concat_ws(' ', p.oid, p.xmin)
  FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
  JOIN pg_catalog.pg_language l ON l.oid = p.prolang
 WHERE n.nspname = %s AND p.proname = %s AND p.pronargs = 0
"""


def _read_function(connection: Session, objects: Objects) -> _Function:
    rows = query(connection, _FUNCTION, [objects.schema, objects.function_name], prepare=True)
    if not rows:
        return _Function(f"the function {objects.function}() is missing", "")
    source, definer, config, language, life = rows[0]
    said = {name.lower(): value for name, _, value in (each.partition("=") for each in config or ())}
    if (source, definer, said, language) != (body(objects), True, settings(), "plpgsql"):
        return _Function(f"the function {objects.function}() is not as headrace made it", life)
    return _Function(None, life)


# --- making and dropping --------------------------------------------------------------------------


def patiently(
    connection: Session,
    objects: Objects,
    table: tuple[int, TableName],
    attempt: Callable[[], T],
    waiting: Waiting = ALONE,
    seconds: float = PATIENCE,
) -> T:
    """Repeat an attempt that locks a table; each waits only a moment. At the end, raise with the holder."""
    deadline, (pause, longest) = time.monotonic() + seconds, _PAUSES
    while True:
        try:
            with in_transaction(connection):
                query(connection, f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT}'")
                lock_creation(connection, objects)
                return attempt()
        except LockTimeout:
            oid, name = table
            who = holders(connection, [oid, *beneath(connection, oid)], _WRITERS)
            error = locked_error(name, [each for those in who.values() for each in those])
            if time.monotonic() > deadline:
                raise error from None
            waiting.tell(error)
        waiting.check()
        time.sleep(pause)
        pause = min(2 * pause, longest)


def make_triggers(connection: Session, objects: Objects, oid: int, table: TableName) -> None:
    """Make sure that a table has our triggers as they should be; in the caller's transaction.

    Correct triggers stay, because other lakes use them.
    """
    found = read_triggers(connection, objects, [oid])[oid]
    if _read_function(connection, objects).flaw is not None:
        _execute(connection, objects, (table, found), capture_function(objects))
        found = read_triggers(connection, objects, [oid])[oid]
    if found.expected_triggers[0].root and not _is_public(connection, objects):
        _execute(connection, objects, (table, found), permission(objects))
    owner = _owns(connection, [oid, *beneath(connection, oid)])
    if found.flaw is None and (found.always or not owner):
        return
    for statement in trigger_statements(objects, table, found, always=owner):
        _execute(connection, objects, (table, found), statement)
    if read_triggers(connection, objects, [oid])[oid].flaw is not None:
        raise overtaken(f"{table} is another table than a moment ago: it was renamed, or made anew")


def _is_public(connection: Session, objects: Objects) -> bool:
    """Tell whether all users may make partitions that have our trigger."""
    question = "SELECT pg_catalog.has_function_privilege('public', %s, 'EXECUTE')"
    return bool(query(connection, question, [f"{objects.function}()"]) == [(True,)])


def trigger_statements(
    objects: Objects, table: TableName, existing: Triggers, *, always: bool = True
) -> list[str]:
    """The statements that give a table its triggers, in place of the existing ones."""
    return [
        *(f"DROP TRIGGER {quote_identifier(name)} ON {table}" for name in existing.names),
        *(trigger.statement(objects, str(table)) for trigger in existing.expected_triggers),
        *(always_statements(objects, table, existing) if always else ()),
    ]


def always_statements(objects: Objects, table: TableName, existing: Triggers) -> list[str]:
    """The statements that make a table's triggers fire in sessions of the replica role too."""
    return [
        # For a root, with all tables beneath it; a new partition gets the root's setting.
        f"ALTER TABLE {'' if trigger.root else 'ONLY '}{table} ENABLE ALWAYS TRIGGER"
        f" {quote_identifier(trigger.name(objects))}"
        for trigger in existing.expected_triggers
    ]


def drop_triggers(connection: Session, objects: Objects, oid: int) -> bool:
    """Drop our triggers, in the caller's transaction; False if only the owner may."""
    names = read_triggers(connection, objects, [oid])[oid].names
    if names and not _owns(connection, [oid]):
        return False
    for table in table_names(connection, [oid]).values():
        for name in names:
            execute_ddl(connection, f"DROP TRIGGER {quote_identifier(name)} ON {table}")
    return True


def table_names(connection: Session, oids: Sequence[int]) -> Mapping[int, TableName]:
    """The present names of tables; a table that is gone is absent."""
    rows = query(
        connection,
        "SELECT c.oid::int8, n.nspname, c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (%s::oid[])",
        [list(oids)],
    )
    return {oid: TableName(schema, name) for oid, schema, name in rows}


def beneath(connection: Session, oid: int) -> list[int]:
    """The oids of the tables beneath a partitioned one; none for any other table."""
    rows = query(
        connection,
        "WITH RECURSIVE beneath(oid) AS ("
        " SELECT i.inhrelid FROM pg_catalog.pg_inherits i"
        " JOIN pg_catalog.pg_class c ON c.oid = i.inhparent AND c.relkind = 'p' WHERE c.oid = %s"
        " UNION ALL SELECT i.inhrelid FROM beneath b"
        " JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid)"
        " SELECT oid::int8 FROM beneath",
        [oid],
    )
    return [found for (found,) in rows]


def _owns(connection: Session, oids: Sequence[int]) -> bool:
    rows = query(
        connection,
        "SELECT bool_and(pg_catalog.pg_has_role(c.relowner, 'USAGE'))"
        " FROM pg_catalog.pg_class c WHERE c.oid = ANY (%s::oid[])",
        [list(oids)],
    )
    return rows == [(True,)]


def _execute(
    connection: Session, objects: Objects, about: tuple[TableName, Triggers], statement: str
) -> None:
    table, found = about
    try:
        execute_ddl(connection, statement)
    except TableGone:
        raise overtaken(f"{table} is not there any more") from None
    except PrivilegeMissing as error:
        raise Misconfigured(
            "QUEUE_TRIGGER_PRIVILEGE",
            f"the server does not let this user make the triggers of {table}",
            detail=error.detail,
            hint="; ".join(trigger_statements(objects, table, found)),
        ) from None
