"""MySQL and MariaDB as `sources.contract` wants them: what the modules beside this one do. No logic.

`SOURCE` is what `sources.registry` hands out for MySQL; MariaDB's stands in a folder of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from headrace.core.chunks import Bound
from headrace.core.position import Position
from headrace.core.schema import TableSchema
from headrace.sources.contract.copying import Reader as AnyReader
from headrace.sources.contract.declaration import Declaration
from headrace.sources.contract.errors import no_readers
from headrace.sources.contract.findings import CheckReport, Wish
from headrace.sources.contract.record import Json
from headrace.sources.contract.session import Address as AnyAddress
from headrace.sources.contract.session import ClockReading, Health, StreamOrder, StreamOrigin, Successor
from headrace.sources.contract.source import Source
from headrace.sources.contract.waiting import Waiting
from headrace.sources.mysql import health, origin
from headrace.sources.mysql import upstream as upstreams
from headrace.sources.mysql.copy import key_range
from headrace.sources.mysql.copy.plan import MysqlCopyTarget
from headrace.sources.mysql.copy.reader import reader
from headrace.sources.mysql.declaration import MYSQL
from headrace.sources.mysql.decode.decoder import MysqlDecoder
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight import MysqlWish, examine, script
from headrace.sources.mysql.session import clock, log_end
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify, prove, prove_kind
from headrace.sources.mysql.session.statements import MysqlConnection as Connection
from headrace.sources.mysql.snapshot.contents import MysqlContents
from headrace.sources.mysql.successor import successor
from headrace.sources.mysql.tables import MysqlTables
from headrace.sources.mysql.upstream import MysqlUpstream


@dataclass(frozen=True, slots=True)
class MysqlSession:
    """A pinned connection, and the server that it reached."""

    connection: Connection
    address: MysqlAddress
    actual_identity: MysqlIdentity

    @property
    def identity(self) -> Json:
        return self.actual_identity.as_record()

    @property
    def is_closed(self) -> bool:
        return self.connection.is_closed

    def close(self) -> None:
        self.connection.close()

    def prove(self, record: Json) -> None:
        prove(self.actual_identity, record)

    # --- what it follows

    def establish(self, upstream: Json, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        return origin.establish(
            self.address, self.actual_identity, MysqlUpstream.of(upstream), order, waiting
        )

    def confirm(self, record: Json, upstream: Json, received_until: Position) -> Successor | None:
        found = successor(
            self.connection,
            self.address,
            self.actual_identity,
            record,
            MysqlUpstream.of(upstream),
            received_until,
        )
        origin.confirm(self.connection)
        return found

    def leave(self, upstream: Json) -> None:
        """Nothing of ours is there."""

    def tables(self, upstream: Json) -> MysqlTables:
        return MysqlTables(self.connection, MysqlUpstream.of(upstream))

    # --- how far it is

    def end(self, upstream: Json) -> Position:
        return log_end.position(self.connection, MysqlUpstream.of(upstream).log)

    def behind_all(self, upstream: Json) -> Position:
        return self.end(upstream)

    def clock(self, upstream: Json) -> ClockReading | None:
        return clock.read(self.connection, MysqlUpstream.of(upstream).log)

    def advance_log(self, upstream: Json) -> bool:
        """A transaction of ours would be one too many on every replica."""
        return False

    def is_quiet(self, upstream: Json, start: Position, stop: Position) -> bool:
        return log_end.is_quiet(start, stop)

    def health(self, upstream: Json, limit: int | None = None) -> Health:
        return health.health(self.connection)

    # --- what its tables hold

    def contents(self, upstream: Json) -> MysqlContents:
        server = MysqlCopyTarget(self.address, self.actual_identity, MysqlUpstream.of(upstream))
        return MysqlContents(self.connection, server)


@dataclass(frozen=True, slots=True)
class MysqlSource:
    """MySQL or MariaDB by its binlog."""

    declaration: Declaration
    flavour: Flavour

    def address(self, text: str) -> MysqlAddress:
        return MysqlAddress.parse(text)

    def connect(self, address: AnyAddress, *, role: str) -> MysqlSession:
        settled = MysqlAddress.parse(address.text).with_password()
        connection = connect(settled, role=role)
        try:
            found = identify(connection)
            prove_kind(found, self.flavour)
            return MysqlSession(connection, settled, found)
        except BaseException:
            connection.close()
            raise

    def check_options(self, options: Mapping[str, str]) -> None:
        """Each of them goes with every other."""

    def upstream(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return upstreams.plan(options).as_record()

    def options(self, upstream: Json) -> dict[str, str]:
        return upstreams.options(MysqlUpstream.of(upstream))

    def objects(self, upstream: Json) -> dict[str, str]:
        return {}

    # --- which tables

    def owns_capture(self, upstream: Json) -> bool:
        return True

    def examine(self, address: AnyAddress, wish: Wish) -> CheckReport:
        return examine(MysqlAddress.parse(address.text).with_password(), MysqlWish.of(wish, self.flavour))

    def script(self, report: CheckReport) -> list[str]:
        return script(report.findings)

    # --- its stream

    def drop(
        self, address: AnyAddress, upstream: Json, other: str | None = None, *, rehearse: bool = False
    ) -> list[str]:
        if other is not None:
            raise no_readers(self.declaration.title)
        return []

    def at(self, upstream: Json, time: int) -> None:
        """A set of transactions does not follow from how many they are."""

    def decoder(self, reference: int = 0) -> MysqlDecoder:
        return MysqlDecoder(self.flavour)

    def reader(self, address: AnyAddress, identity: Json, ticket: Json, *, role: str) -> AnyReader:
        return reader(MysqlAddress.parse(address.text), MysqlIdentity(**identity), ticket, role=role)

    def key_bounds(self, schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
        return key_range.bounds(schema, keys)


SOURCE: Source = MysqlSource(MYSQL, Flavour.MYSQL)
