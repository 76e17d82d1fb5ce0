"""The `Source` of MySQL and MariaDB (`sources.contract.source`): each method calls the module that does the
work.

There is no logic here. `sources.registry` hands out `SOURCE` for MySQL, and `MARIADB_SOURCE` for its flavour.
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
from headrace.sources.contract.copying import Reader as AnyReader
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.mirror import Address as AnyAddress
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import Json, UpstreamFacts
from headrace.sources.mysql import upstream as upstreams
from headrace.sources.mysql.copy import key_range
from headrace.sources.mysql.copy.reader import reader
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.mirror import MysqlServerConnection
from headrace.sources.mysql.preflight import MysqlWish, examine
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, prove_kind
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlSource:
    """MySQL or MariaDB by its binlog."""

    drop: ClassVar[None] = None  # nothing is made at the server
    drop_reader: ClassVar[None] = None

    flavour: Flavour

    def address(self, text: str, credential: Credential | None = None) -> MysqlAddress:
        return MysqlAddress.parse(text, credential)

    def connect(self, address: AnyAddress, *, role: str) -> MysqlServerConnection:
        settled = MysqlAddress.of(address).with_password()
        connection = connect(settled, role=role)
        try:
            found = identify(connection)
            prove_kind(found, self.flavour)
            return MysqlServerConnection(connection, settled, found)
        except BaseException:
            connection.close()
            raise

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return to_record(upstreams.plan(options))

    def describe(self, upstream: Json) -> UpstreamFacts:
        known = MysqlUpstream.of(upstream)
        return UpstreamFacts(options=upstreams.options(known), case_insensitive=known.case_insensitive)

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(MysqlAddress.of(address).with_password(), MysqlWish.of(wish, self.flavour))

    def decoder(self, reference: int = 0) -> MysqlDecoder:
        return MysqlDecoder(self.flavour)

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> AnyReader:
        return reader(MysqlAddress.of(address), from_record(MysqlIdentity, identity), ticket, role=role)

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = MysqlSource(Flavour.MYSQL)
MARIADB_SOURCE: Source = MysqlSource(Flavour.MARIADB)
