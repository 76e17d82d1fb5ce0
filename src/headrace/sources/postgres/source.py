"""PostgreSQL's `Source` (`sources.contract.source`): each method calls the module that does the work.

There is no logic here. `sources.registry` hands out `SOURCE`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.credential import Credential
from headrace.core.records import from_record, to_record
from headrace.core.schema import TableSchema
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.mirror import Address as AnyAddress
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import Json, UpstreamFacts
from headrace.sources.postgres import objects
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.follower import PostgresFollower
from headrace.sources.postgres.copy.reader import PostgresReader
from headrace.sources.postgres.decode.decoder import PostgresDecoder
from headrace.sources.postgres.mirror import PostgresConnection
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify
from headrace.sources.postgres.upstream import PostgresUpstream


@dataclass(frozen=True, slots=True)
class PostgresSource:
    """PostgreSQL by logical replication."""

    drop_reader: ClassVar[None] = None  # each mirror has a slot of its own

    def address(self, text: str, credential: Credential | None = None) -> PostgresAddress:
        return PostgresAddress.parse(text, credential)

    def connect(self, address: AnyAddress, *, role: str) -> PostgresConnection:
        said = PostgresAddress.of(address)
        connection = connect(said, role=role)
        try:
            return PostgresConnection(connection, said.with_environment(connection), identify(connection))
        except BaseException:
            connection.close()
            raise

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return to_record(objects.plan(lake_id, name, options))

    def describe(self, upstream: Json) -> UpstreamFacts:
        known = PostgresUpstream.of(upstream)
        return UpstreamFacts(
            options=objects.options(known),
            objects={"publication": known.publication, "slot": known.slot},
            owns_capture=known.owns_publication,
        )

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(PostgresAddress.of(address), PostgresWish.of(wish))

    def drop(self, address: AnyAddress, upstream: Json, rehearse: bool) -> list[str]:
        act = objects.ours if rehearse else objects.drop
        return act(PostgresAddress.of(address), PostgresUpstream.of(upstream))

    def decoder(self, reference: int = 0) -> PostgresDecoder:
        return PostgresDecoder(reference)

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> PostgresReader:
        return PostgresReader(
            PostgresFollower(PostgresAddress.of(address), from_record(PostgresIdentity, identity), role=role),
            ticket,
        )

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = PostgresSource()
