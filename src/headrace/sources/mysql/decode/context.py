"""The context of bytes of the stream: the transaction that they begin in, and its table maps.

Between two transactions the context is empty: each writes the maps of its tables before its rows.

    BEGIN ─ MAP t ─ ROWS t │ ROWS t ─ MAP u ─ ROWS u │ ROWS u   BEGIN ...    cut between frames
           nothing before    t; 2 of t                 t, u; 3 of t, 1 of u

A transaction has no frame for its end. So the bytes that follow others always belong to the transaction that
begins last in them, until another one begins.

Only the decoder makes and reads contexts; the rooms above carry them and never look inside.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from headrace.core.names import TableName
from headrace.core.records import on_disk
from headrace.decode.mysql import table_map
from headrace.decode.mysql.framing import HEADER
from headrace.sources.contract.decoder import Context
from headrace.sources.mysql.catalog.table_def import table_number


@dataclass(frozen=True, slots=True)
class MysqlOpenTransaction:
    """The transaction in which bytes begin, with the number of changes that each table had before."""

    time: int
    name: str = field(metadata=on_disk("gtid"))
    commit_ts: int
    ordinals: Mapping[int, int]  # by the table's number
    maps: tuple[bytes, ...] = ()  # whole frames, the newest of each id


@dataclass(frozen=True, slots=True)
class MysqlStreamContext:
    """The transaction that is open where bytes begin."""

    inside: MysqlOpenTransaction | None = None

    @property
    def maps(self) -> tuple[bytes, ...]:
        return () if self.inside is None else self.inside.maps

    def only(self, tables: Collection[int]) -> MysqlStreamContext:
        """Keep the part that concerns these tables."""
        if self.inside is None:
            return self
        maps = tuple(frame for frame in self.inside.maps if number_of(frame) in tables)
        ordinals = {table: count for table, count in self.inside.ordinals.items() if table in tables}
        return MysqlStreamContext(replace(self.inside, ordinals=ordinals, maps=maps))


def own(context: Context) -> MysqlStreamContext:
    """Assert that a context is ours, for the type checker."""
    assert isinstance(context, MysqlStreamContext)
    return context


def number_of(frame: bytes) -> int:
    """The table number of a table map."""
    return table_number(TableName(*table_map.names(frame[HEADER:])))
