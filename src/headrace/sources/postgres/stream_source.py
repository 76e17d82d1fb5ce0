"""PostgreSQL's half of the contract that a receiver needs: its stream, under the contract's names.

There is no logic here. `sources.registry` hands out `STREAM_SOURCE`, which loads no Arrow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.core.errors import HeadraceError
from headrace.core.position import Position
from headrace.sources.contract.stream import Orders, StreamRead, StreamSource
from headrace.sources.contract.values import Json
from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.stream_errors import sends_others
from headrace.sources.postgres.stream.slot_stream import SlotRequest, SlotStream
from headrace.sources.postgres.upstream import PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresStream:
    """The stream of a slot, with positions in the mirror's life of the server."""

    stream: SlotStream
    log: PostgresTimeline

    @property
    def start(self) -> Position:
        return self.log.position(self.stream.start)

    @property
    def pause(self) -> float:
        return self.stream.pause

    def read(self, timeout: float) -> StreamRead | None:
        return self.stream.receive(timeout)

    def feedback(self, durable: Position, spooled_until: Position) -> None:
        self.stream.feedback(self.log.lsn(durable), self.log.lsn(spooled_until))

    def close(self) -> None:
        self.stream.close()


class PostgresStreamSource:
    """PostgreSQL's slots."""

    picking: ClassVar[None] = None  # the publication knows the tables

    def open_stream(self, orders: Orders) -> PostgresStream:
        upstream = PostgresUpstream.of(orders.upstream)
        wanted = SlotRequest(
            slot=upstream.slot,
            publications=(upstream.publication,),
            frontier=upstream.log.lsn(orders.frontier),
            received_until=upstream.log.lsn(orders.received_until),
            identity=PostgresIdentity(**orders.identity),
            streaming=orders.running,
            silence=orders.silence,
            base=upstream.base,
            xid=orders.newest,
            forks=upstream.forks,
            rules=upstream.rules,
            hash_key=orders.own_hash_key,
        )
        return PostgresStream(SlotStream.open(PostgresAddress(orders.address), wanted), upstream.log)

    def at(self, upstream: Json, time: int) -> Position:
        return PostgresUpstream.of(upstream).log.at(time)

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        return sends_others(PostgresUpstream.of(upstream).log, sent_times, again)


STREAM_SOURCE: StreamSource = PostgresStreamSource()
