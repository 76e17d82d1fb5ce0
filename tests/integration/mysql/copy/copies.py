"""A copy by the contract of a source, without a mirror: its readers are threads.

with copied(database, "a", "b") as copy:      a snapshot whose readers were begun
    copy.handoff                              now the moment is taken
    copy.rows()                               rows by table, or the code of what kept one from being read
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError
from headrace.core.handoff import Handoff
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.sources.contract.copying import CopyOrder, Piece, Reader, Snapshot
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.values import ALONE, Json, TableDef, Waiting
from headrace.sources.mysql.catalog.definitions import look
from headrace.sources.mysql.catalog.table_def import schema_of, table_number
from headrace.sources.mysql.copy.measure import MysqlTableSizes
from headrace.sources.mysql.copy.reader import reader
from headrace.sources.mysql.session.address import MysqlAddress
from headrace.sources.mysql.session.connection import connect
from headrace.sources.mysql.session.identity import MysqlIdentity, identify
from headrace.sources.mysql.upstream import MysqlUpstream
from headrace_testing.mysql import Database
from tests.bound import mysql_mirror

BASE = 8 << 40  # of a later life of the binlog
SECONDS = 60.0

Answer: TypeAlias = pa.Table | str
Before = Callable[[Reader, Piece], None]  # called by a reader before each piece


@dataclass
class Copy:
    """A copy that is under way."""

    address: MysqlAddress
    identity: MysqlIdentity
    tables: dict[TableName, TableDef]
    measured: MysqlTableSizes
    snapshot: Snapshot
    shares: list[list[Piece]]
    started: list[Future[list[tuple[Piece, Answer]]]]
    handoffs: list[Handoff]
    refusals: list[HeadraceError]

    def answers(self) -> list[tuple[Piece, Answer]]:
        """Wait for the pieces, and return the answers of each."""
        return [answer for future in self.started for answer in future.result(SECONDS)]

    def rows(self) -> dict[str, pa.Table]:
        """The rows of each table that was read, by its name, all pieces together."""
        found: dict[str, list[pa.Table]] = {}
        for piece, answer in self.answers():
            found.setdefault(piece.table.name, []).append(answer)
        codes = self.codes()
        return {name: pa.concat_tables(parts) for name, parts in found.items() if name not in codes}

    def errors(self) -> list[HeadraceError]:
        """Errors that kept tables from being read."""
        self.answers()
        return self.refusals

    def codes(self) -> dict[str, str]:
        """The codes of what kept tables from being read."""
        return {piece.table.name: answer for piece, answer in self.answers() if isinstance(answer, str)}


def defined(database: Database, *tables: str) -> dict[TableName, TableDef]:
    with connect(MysqlAddress.parse(database.url(user="mirror")), role="test") as session:
        looks = look(session, [TableName(database.name, name) for name in tables])
    return {
        name: TableDef(name, table_number(name), schema_of(each), {}) for name, each in sorted(looks.items())
    }


@contextmanager
def copied(
    database: Database,
    *names: str,
    readers: int = 2,
    target: int = 1 << 20,
    waiting: Waiting = ALONE,
    compare: bool = False,
    reached: Position | None = None,
    dealt: list[Piece] | None = None,
    before: Before = lambda _, __: None,
    port: int | None = None,
) -> Iterator[Copy]:
    """Plan a copy and begin its readers; the moment is taken when somebody asks for the handoff."""
    address = MysqlAddress.parse(database.url(user="mirror", port=port))
    tables = defined(database, *names)
    with connect(address, role="test") as session:
        identity = identify(session)
        mirror = mysql_mirror(session, MysqlUpstream(base=BASE))
        measured = mirror.measure(list(tables.values()))
        fit = [tables[name] for name in measured.sizes]
        taken = (
            mirror.snapshot(fit, readers, SECONDS)
            if compare
            else mirror.plan_copy(CopyOrder(fit, readers, {}, reached)).snapshot(fit, waiting)
        )
    # In this order: readers that wait for a moment that fails learn it from its end.
    with ThreadPoolExecutor(readers) as pool, taken as snapshot:
        pieces = measured.pieces([table.name for table in fit], target)
        if dealt is not None:
            dealt += pieces
        shares = snapshot.shares(pieces)
        handoffs: list[Handoff] = []
        refusals: list[HeadraceError] = []
        kept = (handoffs, refusals, before)
        started = [
            pool.submit(_read, address, identity, snapshot.ticket, tables, share, *kept) for share in shares
        ]
        yield Copy(address, identity, tables, measured, snapshot, shares, started, handoffs, refusals)


def _read(
    address: MysqlAddress,
    identity: MysqlIdentity,
    ticket: Json,
    tables: dict[TableName, TableDef],
    share: Sequence[Piece],
    handoffs: list[Handoff],
    refusals: list[HeadraceError],
    before: Before,
) -> list[tuple[Piece, Answer]]:
    found: list[tuple[Piece, Answer]] = []
    with reader(address, identity, ticket, role="copy") as reading:
        for piece in share:
            before(reading, piece)
            schema = tables[piece.table].schema
            try:
                with reading.read(schema.columns, piece) as one:
                    rows = [copied.rows for copied in one.rows]
                    handoffs.append(one.handoff)
                found.append((piece, pa.concat_tables(rows or [schema.arrow().empty_table()])))
            except (TableBusy, Definite) as error:
                refusals.append(error)
                found.append((piece, error.code))
    return found
