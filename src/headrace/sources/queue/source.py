"""The queue's `Source` (`sources.contract.source`): each method calls the module that does the work.

There is no logic here. `sources.registry` hands out `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.credential import Credential
from headrace.core.records import from_record, to_record
from headrace.core.schema import TableSchema
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.mirror import Address as AnyAddress
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import Json, UpstreamFacts
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.queue import removal
from headrace.sources.queue.copy.reader import QueueReader
from headrace.sources.queue.decode.decoder import QueueDecoder
from headrace.sources.queue.mirror import QueueConnection
from headrace.sources.queue.preflight import QueueWish, examine
from headrace.sources.queue.session.address import QueueAddress
from headrace.sources.queue.upstream import QueueUpstream, options_of, plan


@dataclass(frozen=True, slots=True)
class QueueSource:
    """PostgreSQL by triggers."""

    def address(self, text: str, credential: Credential | None = None) -> QueueAddress:
        return QueueAddress.parse(text, credential)

    def connect(self, address: AnyAddress, *, role: str) -> QueueConnection:
        said = QueueAddress.of(address)
        connection = connect(said.server, role=role)
        try:
            return QueueConnection(connection, said.with_environment(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return to_record(plan(lake_id, name, options))

    def describe(self, upstream: Json) -> UpstreamFacts:
        return UpstreamFacts(options=options_of(QueueUpstream.of(upstream)))

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(QueueAddress.of(address).server, QueueWish.of(wish))

    def drop(self, address: AnyAddress, upstream: Json, rehearse: bool) -> list[str]:
        server, ours = QueueAddress.of(address).server, QueueUpstream.of(upstream)
        return removal.removable(server, ours) if rehearse else removal.drop(server, ours)

    def drop_reader(self, address: AnyAddress, upstream: Json, other: str, rehearse: bool) -> list[str]:
        server, ours = QueueAddress.of(address).server, QueueUpstream.of(upstream)
        if rehearse:
            return removal.removable(server, ours, other)
        return removal.drop_other(server, ours, other)

    def decoder(self, reference: int = 0) -> QueueDecoder:
        return QueueDecoder()

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> QueueReader:
        return QueueReader(
            QueueAddress.of(address).server, from_record(PostgresIdentity, identity), ticket, role
        )

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = QueueSource()
