"""The contract, on a SQLite file: a kind of source, its connections, its mirrors, its copies.

A snapshot is a copy of the file (`VACUUM INTO`): readers in other processes open it, and it stays as it is.
"""

from __future__ import annotations

import json
import os
import sqlite3
import tempfile
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.core.credential import Credential
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.copying import (
    CopyOrder,
    CopyPlan,
    Key,
    Piece,
    PieceRead,
    Reader,
    Snapshot,
    TableSizes,
)
from headrace.sources.contract.findings import CheckReport, Finding, Level, Wish, in_order
from headrace.sources.contract.mirror import (
    Address,
    Mirror,
    PlainAddress,
    StreamOrder,
    StreamOrigin,
    Successor,
)
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import (
    Change,
    ExaminedTables,
    Json,
    SchemaCheck,
    StatementLog,
    TableDef,
    TableSize,
    UpstreamFacts,
    Waiting,
)
from headrace.sources.shared.patterns import select
from toy_source import database
from toy_source.decoder import ToyDecoder, arrow

SCHEMA = "main"
TYPES = dict.fromkeys(("INTEGER", "INT", "BIGINT"), pa.int64()) | dict.fromkeys(
    ("TEXT", "VARCHAR"), pa.string()
)


# --- tables -------------------------------------------------------------------------------------


def tables_of(connection: sqlite3.Connection) -> ExaminedTables:
    """All tables whose changes are written down, and what stands against some of them."""
    defs, errors = dict[TableName, TableDef](), dict[TableName, HeadraceError]()
    known = connection.execute(
        "SELECT number, t.name, columns, s.sql FROM headrace_table t JOIN sqlite_schema s ON t.name = s.name"
        " JOIN sqlite_schema made ON made.tbl_name = t.name"
        " AND made.name = 'headrace_' || number || '_DELETE'"
    )
    for number, text, recorded, statement in known.fetchall():
        name, rows = TableName(SCHEMA, text), _columns(connection, text)
        types = [TYPES.get(kind.partition("(")[0].upper()) for _, _, kind, *_ in rows]
        columns = [
            Column(row[1], kind or pa.string(), "toy", row[2], nullable=not (row[3] or row[5]))
            for row, kind in zip(rows, types, strict=True)
        ]
        key = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
        defs[name] = TableDef(name, number, TableSchema(tuple(columns), key, full=True), {"sql": statement})
        if not key or None in types:
            what = "has no key, or a column that is neither INTEGER nor TEXT"
            errors[name] = Misconfigured("TOY_TABLE_UNFIT", f"{name} {what}", hint="leave it out")
        elif [column.name for column in columns] != json.loads(recorded):
            what = "has triggers that do not write down all of its columns"
            hint = f'run toy_source.database.prepare(connection, "{text}") again'
            errors[name] = Misconfigured("TOY_TRIGGERS_OLD", f"{name} {what}", hint=hint)
    return ExaminedTables(defs, errors)


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[Any, ...]]:
    return connection.execute(f"PRAGMA table_info({database.quoted(table)})").fetchall()


def among(found: ExaminedTables, names: Collection[TableName]) -> ExaminedTables:
    return ExaminedTables(
        {name: table for name, table in found.defs.items() if name in names},
        {name: error for name, error in found.errors.items() if name in names},
    )


# --- copies -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToySnapshot(Snapshot):
    """A copy of the file, in a folder of its own until the block ends."""

    folder: tempfile.TemporaryDirectory[str]
    handoff: ByPosition

    @classmethod
    def take(cls, path: str) -> ToySnapshot:
        folder = tempfile.TemporaryDirectory(prefix="toy-source-")
        with closing(database.connect(path)) as connection:
            connection.execute("VACUUM INTO ?", [f"{folder.name}/copy"])
        with closing(database.connect(f"{folder.name}/copy")) as connection:
            return cls(folder, ByPosition(database.end(connection)))

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()

    @property
    def ticket(self) -> Json:
        return {"file": f"{self.folder.name}/copy", "handoff": to_record(self.handoff)}

    def alive(self) -> bool:
        return os.path.exists(self.folder.name)


@dataclass(frozen=True, slots=True)
class ToyPlan(CopyPlan):
    """A copy: nothing has to be waited for, since who writes a file writes alone."""

    path: str

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> ToySnapshot:
        return ToySnapshot.take(self.path)


@dataclass(frozen=True, slots=True)
class ToyReader(Reader):
    """Whole tables out of the copy."""

    ticket: Json

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        rows = CopiedRows(self._rows(columns, piece.table), ())
        yield PieceRead(from_record(ByPosition, self.ticket["handoff"]), iter([rows]))

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        for number, piece in enumerate(pieces):
            rows = self._rows(schema.columns, piece.table)
            texts = zip(*(rows[name].cast(pa.string()).to_pylist() for name in schema.key), strict=True)
            yield number, rows.filter(pa.array([text in set(keys) for text in texts], pa.bool_()))

    def _rows(self, columns: Sequence[Column], table: TableName) -> pa.Table:
        listed = ", ".join(database.quoted(column.name) for column in columns)
        with closing(database.connect(self.ticket["file"])) as connection:
            rows = connection.execute(f"SELECT {listed} FROM {database.quoted(table.name)}").fetchall()
        schema = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in columns])
        return arrow(table, [dict(zip(schema.names, row, strict=True)) for row in rows], schema)


# --- a mirror -----------------------------------------------------------------------------------


@dataclass(slots=True)
class ToyConnection:
    """The file, opened."""

    address: Address
    session: sqlite3.Connection
    is_closed: bool = False

    @property
    def identity(self) -> Json:
        return {"history": database.history(self.session)}

    def close(self) -> None:
        self.session.close()
        self.is_closed = True

    def mirror(self, upstream: Json, identity: Json | None = None) -> ToyMirror:
        if identity is not None:
            database.prove_history(self.session, identity["history"])
        return ToyMirror(self)


@dataclass(frozen=True, slots=True)
class ToyMirror(Mirror):
    """The tables of a file that have our triggers, and its change table; triggers are the user's to make."""

    connection: ToyConnection

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        start, tables = self.end(), self.examine(order.names)
        if order.received_until is not None and start.time < order.received_until.time:
            raise Misconfigured(
                "TOY_FILE_OLDER",
                "the file is an older copy of the one that was followed",
                hint="mirror it into another lake",
            )
        return StreamOrigin(self.connection.identity, {}, start, fresh=True, begun_at=None, tables=tables)

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        database.prove_history(self.connection.session, identity["history"])
        database.prove_changes(self.connection.session, received_until)
        return None

    def examine(self, names: Sequence[TableName]) -> ExaminedTables:
        return among(tables_of(self.connection.session), names)

    def check(self, records: Mapping[str, TableDef], log: StatementLog | None = None) -> SchemaCheck:
        # The tables first: what was altered before the end is seen, as a change of the statement's text.
        now, changes = tables_of(self.connection.session), dict[str, Change]()
        for key, known in records.items():
            table = now.defs.get(known.name)
            if table is None or (table.number, table.details) != (known.number, known.details):
                changes[key] = Change("it was altered or dropped", table)
        return SchemaCheck(self.end(), 0, changes)

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        now = tables_of(self.connection.session)
        found = select(patterns, now.defs).names
        return {name: now.errors.get(name) for name in found if name not in mirrored_tables}

    def end(self) -> Position:
        return database.end(self.connection.session)

    def measure(self, tables: Sequence[TableDef]) -> TableSizes:
        sizes = dict[TableName, TableSize]()
        for name in (table.name for table in tables):
            count = f"SELECT count(*) FROM {database.quoted(name.name)}"
            [(rows,)] = self.connection.session.execute(count)
            sizes[name] = TableSize(64 * rows, rows)
        return TableSizes(sizes, busy={})

    def plan_copy(self, order: CopyOrder) -> ToyPlan:
        return ToyPlan(self.connection.address.text.removeprefix("toy://"))

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> ToySnapshot:
        return ToySnapshot.take(self.connection.address.text.removeprefix("toy://"))


# --- the kind -----------------------------------------------------------------------------------


class ToySource(Source):
    """SQLite files with a change table; nothing is made in them."""

    def address(self, text: str, credential: Credential | None = None) -> PlainAddress:
        return PlainAddress("toy://" + os.path.abspath(text.removeprefix("toy://")))

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return {}

    def describe(self, upstream: Json) -> UpstreamFacts:
        return UpstreamFacts()

    def examine(self, address: Address, wish: Wish) -> CheckReport:
        with closing(self.connect(address, role="check")) as connection:
            now = tables_of(connection.session)
        chosen = select(wish.patterns, now.defs)
        findings = [
            Finding(Level.ERROR, now.errors[name], table=name).for_swept(chosen.named_tables)
            for name in chosen.names
            if name in now.errors
        ]
        fit = tuple(now.defs[name] for name in chosen.names if name not in now.errors)
        return CheckReport(
            version=sqlite3.sqlite_version_info[0],
            tables=fit,
            sizes={table.name: TableSize(0, 0) for table in fit},
            findings=in_order(findings),
            named_tables=chosen.named_tables,
        )

    def connect(self, address: Address, *, role: str) -> ToyConnection:
        return ToyConnection(address, database.connect(address.text.removeprefix("toy://")))

    def reader(self, address: Address, identity: Json, ticket: Json, *, role: str) -> ToyReader:
        return ToyReader(ticket)

    def decoder(self, reference: int = 0) -> ToyDecoder:
        return ToyDecoder()


SOURCE: Source = ToySource()
