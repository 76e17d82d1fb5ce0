"""Candidates: the relations that a pattern may name. Preflight matches patterns against them."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.names import TableName
from headrace.sources.postgres.session.statements import Session, query


@dataclass(frozen=True, slots=True)
class PostgresCandidate:
    """A relation that a pattern may name."""

    oid: int
    name: TableName
    kind: str
    persistence: str


def candidates(connection: Session) -> list[PostgresCandidate]:
    """Every relation of users that has rows: tables of all kinds and views."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema'"
        " AND (n.nspname !~ '^pg_' OR n.nspname ~ '^pg_temp_') ORDER BY 2, 3",
    )
    return [
        PostgresCandidate(oid, TableName(schema, name), kind, how) for oid, schema, name, kind, how in rows
    ]
