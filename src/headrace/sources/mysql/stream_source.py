"""MySQL's and MariaDB's half of the contract that a receiver needs: its stream, under the contract's names.

There is no logic here. Arrow is loaded only if a rule of columns wants values masked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.stream import Orders, StreamRead, StreamSource
from headrace.sources.contract.values import Json
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.stream.dump import BinlogDump, DumpRequest
from headrace.sources.mysql.stream.errors import history_changed
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlStream:
    """The stream of a dump; the server does not remember how far it was read."""

    feedback: ClassVar[None] = None

    dump: BinlogDump
    mask: Callable[[StreamRead], StreamRead] | None = None  # it overwrites what must not leave

    @property
    def start(self) -> Position:
        return self.dump.start

    @property
    def pause(self) -> float:
        return self.dump.pause

    def read(self, timeout: float) -> StreamRead | None:
        found = self.dump.read(timeout)
        return found if found is None or self.mask is None else self.mask(found)

    def close(self) -> None:
        self.dump.close()


class MysqlStreamSource:
    """Dumps of binlogs."""

    at: ClassVar[None] = None  # a count of transactions does not tell their set

    def open_stream(self, orders: Orders) -> MysqlStream:
        upstream = MysqlUpstream.of(orders.upstream)
        wanted = DumpRequest(
            tables=upstream.tables,
            frontier=orders.frontier,
            received_until=orders.received_until,
            log=upstream.log,
            identity=orders.identity,
            silence=orders.silence,
        )
        dump = BinlogDump.open(MysqlAddress.parse(orders.address), wanted)
        return MysqlStream(dump, _mask(upstream, dump, orders) if upstream.columns else None)

    def picking(self, upstream: Json, tables: Collection[TableName], options: Mapping[str, str]) -> Json:
        """Add these tables to the record: the binlog has all tables of the server."""
        names = tuple(sorted((each.schema, each.name) for each in tables))
        return to_record(replace(MysqlUpstream.of(upstream), tables=names))

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        return history_changed(len(sent_times), len(again))


def _mask(upstream: MysqlUpstream, dump: BinlogDump, orders: Orders) -> Callable[[StreamRead], StreamRead]:
    # Imported late: it reads rows, and loads Arrow for that.
    from headrace.sources.mysql.stream.masking import ColumnMask

    folds = upstream.case_insensitive
    return ColumnMask(upstream.rules, dump.is_mariadb, folds, orders.own_hash_key).apply


STREAM_SOURCE: StreamSource = MysqlStreamSource()
MARIADB_STREAM_SOURCE = STREAM_SOURCE
