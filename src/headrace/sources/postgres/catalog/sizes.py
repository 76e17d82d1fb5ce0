"""Sizes: how big tables are, to cut their copies and to show progress.

It takes a lock on each table, which waits for whoever holds it exclusively: ask through `locks.measure`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.sources.postgres.session.statements import Session, query


@dataclass(frozen=True, slots=True)
class RelationSize:
    """The size of a table: exact bytes and pages, and an estimate of its rows."""

    pages: int
    bytes: int  # with TOAST, without indexes
    rows: int


def sizes(connection: Session, oids: Sequence[int]) -> dict[int, RelationSize]:
    """Measure these tables. Rows follow the statistics' density; -1 pages of them means none."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, pg_relation_size(c.oid) / s.block,"
        " pg_table_size(c.oid), c.reltuples::float8, c.relpages"
        " FROM pg_class c,"
        " (SELECT current_setting('block_size')::int AS block) s"
        " WHERE c.oid = ANY (%s::oid[]) AND pg_relation_size(c.oid) IS NOT NULL",
        [list(oids)],
    )
    return {
        oid: RelationSize(pages, size, _rows(pages, tuples, known))
        for oid, pages, size, tuples, known in rows
    }


def total(several: Iterable[RelationSize]) -> RelationSize:
    """The size of several tables that are one."""
    sizes = list(several)
    return RelationSize(sum(s.pages for s in sizes), sum(s.bytes for s in sizes), sum(s.rows for s in sizes))


# Without statistics: the server's own planner assumes about as many for a narrow row.
_ROWS_A_PAGE = 100


def _rows(pages: int, tuples: float, known_pages: int) -> int:
    if tuples >= 0 and known_pages > 0:
        return round(tuples / known_pages * pages)
    return pages * _ROWS_A_PAGE
