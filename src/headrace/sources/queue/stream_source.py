"""The queue's half of the contract that a receiver needs: its stream, under the contract's names.

There is no logic here, and no Arrow is loaded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.stream import Orders, StreamRead, StreamSource
from headrace.sources.contract.values import Json
from headrace.sources.queue.proof import history_changed
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.queue.stream.queue_stream import QueueRequest, QueueStream
from headrace.sources.queue.upstream import QueueUpstream, with_pauses


@dataclass(frozen=True, slots=True)
class Ticks:
    """A stream of ticks."""

    stream: QueueStream

    @property
    def start(self) -> Position:
        return self.stream.start

    @property
    def pause(self) -> float:
        return self.stream.pause

    def read(self, timeout: float) -> StreamRead | None:
        return self.stream.read(timeout)

    def feedback(self, durable: Position, spooled_until: Position) -> None:
        self.stream.feedback(durable)

    def close(self) -> None:
        self.stream.close()


class QueueStreamSource:
    """Queues in a PostgreSQL."""

    at: ClassVar[None] = None  # a position needs a tick's nonce, which its number does not give

    def open_stream(self, orders: Orders) -> Ticks:
        known = QueueUpstream.of(orders.upstream)
        wanted = QueueRequest(known, orders.frontier, orders.received_until, orders.identity)
        return Ticks(QueueStream.open(QueueAddress.parse(orders.address).server, wanted))

    def picking(self, upstream: Json, tables: Collection[TableName], options: Mapping[str, str]) -> Json:
        """The queue's record with the pauses of this run; the triggers decide which tables come."""
        return to_record(with_pauses(QueueUpstream.of(upstream), options))

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        return history_changed(sent_times, again)


STREAM_SOURCE: StreamSource = QueueStreamSource()
