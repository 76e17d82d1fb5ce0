"""The tables of a source: what each is, and how big.

A definition is of one moment. Its `record` is the source's own: it is stored, handed back as what is `known`
of the table, and compared by the source alone.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.sources.contract.record import Json


@dataclass(frozen=True, slots=True)
class TableDef:
    """A table as it was defined at one moment."""

    name: TableName
    number: int  # as the stream numbers it
    schema: TableSchema  # as the lake will know it
    record: Json


@dataclass(frozen=True, slots=True)
class Size:
    """What a table holds: bytes, and an estimate of its rows."""

    bytes: int
    rows: int
