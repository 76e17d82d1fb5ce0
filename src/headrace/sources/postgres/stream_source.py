"""PostgreSQL's half of the contract that a receiver needs: its stream, under the contract's names.

No logic stands here. `STREAM_SOURCE` is what `sources.registry` hands out; no Arrow is loaded for it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.arrival import Received
from headrace.sources.contract.record import Json
from headrace.sources.contract.stream import Orders, StreamSource
from headrace.sources.postgres.lsn import Log
from headrace.sources.postgres.objects import Upstream
from headrace.sources.postgres.protocol.stream_errors import sends_others
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.stream.slot_stream import SlotStream, Wanted


@dataclass(frozen=True, slots=True)
class PostgresStream:
    """The stream of a slot, in positions of the life of the server that it is of."""

    stream: SlotStream
    log: Log

    @property
    def start(self) -> Position:
        return self.log.position(self.stream.start)

    @property
    def pause(self) -> float:
        return self.stream.pause

    def read(self, timeout: float) -> Received | None:
        return self.stream.receive(timeout)

    def feedback(self, acknowledged: Position, written: Position) -> None:
        self.stream.feedback(self.log.lsn(acknowledged), self.log.lsn(written))

    def close(self) -> None:
        self.stream.close()


class PostgresStreamSource:
    """PostgreSQL's slots."""

    def open_stream(self, orders: Orders) -> PostgresStream:
        upstream = Upstream.of(orders.upstream)
        wanted = Wanted(
            slot=upstream.slot,
            publications=(upstream.publication,),
            frontier=upstream.log.lsn(orders.frontier),
            reached=upstream.log.lsn(orders.reached),
            identity=Identity(**orders.identity),
            streaming=orders.running,
            silence=orders.silence,
            base=upstream.base,
            xid=orders.newest,
        )
        return PostgresStream(SlotStream.open(Address(orders.address), wanted), upstream.log)

    def at(self, upstream: Json, time: int) -> Position:
        return Upstream.of(upstream).log.at(time)

    def picking(self, upstream: Json, tables: Collection[TableName], options: Mapping[str, str]) -> Json:
        """The same: the publication knows the tables."""
        return upstream

    def history_changed(self, upstream: Json, sent: Sequence[int], again: Sequence[int]) -> HeadraceError:
        return sends_others(Upstream.of(upstream).log, sent, again)


STREAM_SOURCE: StreamSource = PostgresStreamSource()
