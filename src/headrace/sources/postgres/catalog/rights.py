"""Rights that a copy needs and the stream does not: a table without them is still followed.

A new partition does not have the rights of its root, and a copy reads each partition by its own name. So each
look checks the partitions that are new to it. A row-level security policy may hide rows from us. Without
these checks only the next copy would find the fault. A right that is revoked later is found only by the copy.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.names import TableName, quote_identifier
from headrace.sources.contract.errors import TableDenied
from headrace.sources.postgres.catalog.partition_tree import Branch, leaves
from headrace.sources.postgres.session.statements import Session, query

_UNREADABLE = """
SELECT c.oid::int8, n.nspname, c.relname, pg_catalog.has_schema_privilege(n.oid, 'USAGE'),
       pg_catalog.has_table_privilege(c.oid, 'SELECT')
  FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%s::oid[]) AND NOT (pg_catalog.has_schema_privilege(n.oid, 'USAGE')
                                        AND pg_catalog.has_table_privilege(c.oid, 'SELECT'))
 ORDER BY 2, 3
"""


@dataclass(frozen=True, slots=True)
class UnreadableTables:
    """A table that this user may not read, and the statements that grant the right."""

    name: TableName
    grants: tuple[str, ...]


def grants(user: str, name: TableName, *, schema: bool, select: bool) -> tuple[str, ...]:
    """The statements that grant the missing rights to read a table: USAGE of its schema, SELECT on it."""
    role = quote_identifier(user)
    usage = f"GRANT USAGE ON SCHEMA {quote_identifier(name.schema)} TO {role}"
    return (*(() if schema else (usage,)), *(() if select else (f"GRANT SELECT ON {name} TO {role}",)))


def unreadable(connection: Session, oids: Sequence[int]) -> dict[int, UnreadableTables]:
    """Find the tables, by oid, that this user may not read."""
    found = {}
    for oid, schema, relation, usage, select in query(connection, _UNREADABLE, [list(oids)]):
        name = TableName(schema, relation)
        found[oid] = UnreadableTables(name, grants(connection.info.user, name, schema=usage, select=select))
    return found


@dataclass(slots=True)
class ReadablePartitions:
    """The partitions that a session is known to be allowed to read."""

    oids: frozenset[int] = frozenset()

    def denials(
        self, connection: Session, roots: Mapping[str, tuple[TableName, Iterable[Branch]]]
    ) -> dict[str, TableDenied]:
        """The error of each root that has a partition which we may not read, by the caller's key."""
        beneath = {key: [leaf.oid for leaf in leaves(tree)] for key, (_, tree) in roots.items()}
        there = frozenset(oid for oids in beneath.values() for oid in oids)
        self.oids &= there
        if not (unknown := there - self.oids):
            return {}
        found = unreadable(connection, sorted(unknown))
        self.oids |= unknown - found.keys()
        lacking = {key: [found[oid] for oid in oids if oid in found] for key, oids in beneath.items()}
        user = connection.info.user
        return {key: partitions_denied(roots[key][0], user, those) for key, those in lacking.items() if those}


def partitions_denied(root: TableName, user: str, those: Sequence[UnreadableTables]) -> TableDenied:
    """The error of a root whose next copy will fail."""
    names = ", ".join(str(each.name) for each in those[:5]) + (", ..." if len(those) > 5 else "")
    return TableDenied(
        "PG_PARTITION_PRIVILEGE",
        f'the user "{user}" may not read {len(those)} of the partitions of {root}: it can\'t be copied anew',
        detail=names,
        hint="; ".join(statement for each in those for statement in each.grants),
    )


_HIDDEN = "SELECT o.oid::int8 FROM unnest(%s::oid[]) o(oid) WHERE pg_catalog.row_security_active(o.oid)"


def rows_hidden(connection: Session, tables: Mapping[str, tuple[int, TableName]]) -> dict[str, TableDenied]:
    """The error of each of these tables whose rows a policy may hide from us, by the caller's key."""
    oids = sorted({oid for oid, _ in tables.values()})
    hidden = {oid for (oid,) in query(connection, _HIDDEN, [oids])} if oids else set()
    role = quote_identifier(connection.info.user)
    return {
        key: TableDenied(
            "PG_ROWS_HIDDEN",
            f"row-level security would hide rows of {name} from a copy: it can't be copied anew",
            detail=f"the user {role} is subject to the table's policies",
            hint=f"ALTER ROLE {role} BYPASSRLS",
        )
        for key, (oid, name) in tables.items()
        if oid in hidden
    }
