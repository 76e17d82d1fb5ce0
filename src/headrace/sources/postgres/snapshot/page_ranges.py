"""Ranges of pages: the parts in which a table is copied, each by one COPY.

Ranges are cut by the table's size in pages. A table that grows or has grown since only skews the work, for
the last range has no end. Planned by the driver, copied by a `follower`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.names import TableName, quote_identifier
from headrace.sources.postgres.catalog.sizes import Size
from headrace.sources.postgres.catalog.table_def import TableLook


@dataclass(frozen=True, slots=True)
class CopyRange:
    """Pages `low_page <= page < high_page` of a table; the last range of a table has no end."""

    table: TableName
    oid: int  # of the table: a name may lead to another one
    low_page: int
    high_page: int | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int


def ranges(looks: Sequence[TableLook], sizes: Mapping[int, Size], target_bytes: int) -> list[CopyRange]:
    """Cut the tables into ranges of about `target_bytes` each, TOAST included; every page is in one."""
    return [piece for look in looks for piece in _cut(look.name, look.oid, sizes[look.oid], target_bytes)]


def _cut(table: TableName, oid: int, size: Size, target_bytes: int) -> Iterator[CopyRange]:
    count = max(1, min(size.pages, round(size.bytes / target_bytes)))
    edges = [size.pages * k // count for k in range(count)]
    for k, low in enumerate(edges):
        yield CopyRange(
            table=table,
            oid=oid,
            low_page=low,
            high_page=edges[k + 1] if k + 1 < count else None,
            rows=size.rows * (k + 1) // count - size.rows * k // count,
            bytes=size.bytes * (k + 1) // count - size.bytes * k // count,
        )


def copy_statement(columns: Sequence[str], piece: CopyRange) -> str:
    """The COPY of a range. ONLY: the children of an inheritance parent are copied as themselves."""
    listed = ", ".join(quote_identifier(column) for column in columns)
    bounds = [f"ctid >= '({piece.low_page},0)'::tid"] if piece.low_page else []
    if piece.high_page is not None:
        bounds.append(f"ctid < '({piece.high_page},0)'::tid")
    where = f" WHERE {' AND '.join(bounds)}" if bounds else ""
    return f"COPY (SELECT {listed} FROM ONLY {piece.table}{where}) TO STDOUT"
