"""The contract, on a SQLite file: a kind of source, its connections, its mirrors, its copies.

A snapshot is a copy of the file (`VACUUM INTO`): readers in other processes open it, and it stays as it is.
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Collection, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import pyarrow as pa

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.handoff import ByPosition
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources.contract.copying import CopyOrder, Key, Piece, PieceRead
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.findings import CheckReport, Finding, Level, Wish, in_order
from headrace.sources.contract.mirror import (
    Address,
    ClockReading,
    Health,
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
from toy_source.decoder import ToyDecoder
from toy_source.spelling import change_of, position

SCHEMA = "main"
TYPES = {"INTEGER": pa.int64(), "TEXT": pa.string()}


@dataclass(frozen=True, slots=True)
class ToyAddress:
    """A path; there is nothing secret in it."""

    path: str

    @property
    def text(self) -> str:
        return f"toy://{self.path}"

    def without_secrets(self) -> str:
        return self.text

    def __str__(self) -> str:
        return self.text


# --- tables -------------------------------------------------------------------------------------


def tables_of(connection: sqlite3.Connection) -> ExaminedTables:
    """All tables whose changes are written down, and what stands against some of them."""
    defs, errors = dict[TableName, TableDef](), dict[TableName, HeadraceError]()
    for number, text in connection.execute("SELECT number, name FROM headrace_table").fetchall():
        rows = connection.execute(f'PRAGMA table_info("{text}")').fetchall()
        if not rows:
            continue
        name = TableName(SCHEMA, text)
        columns = [
            Column(column, TYPES.get(kind, pa.string()), "toy", kind, nullable=not (required or key))
            for _, column, kind, required, _, key in rows
        ]
        key = tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])
        [(statement,)] = connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [text])
        defs[name] = TableDef(name, number, TableSchema(tuple(columns), key, full=True), {"sql": statement})
        if any(kind not in TYPES for _, _, kind, *_ in rows) or not key:
            errors[name] = Misconfigured(
                "TOY_TABLE_UNFIT",
                f"{name} has no key, or a column that is neither INTEGER nor TEXT",
                hint="leave it out of the tables",
            )
    return ExaminedTables(defs, errors)


def among(found: ExaminedTables, names: Collection[TableName]) -> ExaminedTables:
    return ExaminedTables(
        {name: table for name, table in found.defs.items() if name in names},
        {name: error for name, error in found.errors.items() if name in names},
    )


# --- copies -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToyPiece:
    """A whole table."""

    table: TableName
    bytes: int


@dataclass(frozen=True, slots=True)
class ToySizes:
    """The sizes of tables; a file is never busy for a reader."""

    sizes: Mapping[TableName, TableSize]
    busy: ClassVar[Mapping[TableName, TableBusy]] = {}

    def pieces(self, tables: Collection[TableName], target_bytes: int) -> list[Piece]:
        return [ToyPiece(name, self.sizes[name].bytes) for name in tables]


@dataclass(frozen=True, slots=True)
class ToySnapshot:
    """A copy of the file, in a folder of its own until the block ends."""

    admits_later: ClassVar[bool] = True

    folder: tempfile.TemporaryDirectory[str]
    handoff: ByPosition

    @classmethod
    def take(cls, path: str) -> ToySnapshot:
        folder = tempfile.TemporaryDirectory(prefix="toy-source-")
        copy = os.path.join(folder.name, "copy")
        with database.open_file(path) as connection:
            connection.execute("VACUUM INTO ?", [copy])
        with database.open_file(copy) as connection:
            return cls(folder, ByPosition(position(database.newest(connection))))

    def __enter__(self) -> ToySnapshot:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.folder.cleanup()

    @property
    def ticket(self) -> Json:
        return {"file": os.path.join(self.folder.name, "copy"), "handoff": to_record(self.handoff)}

    def settle(self) -> ByPosition:
        return self.handoff

    def shares(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        return [[piece] for piece in pieces]

    def alive(self) -> bool:
        return Path(self.folder.name).exists()


@dataclass(frozen=True, slots=True)
class ToyPlan:
    """A copy: nothing has to be waited for, since who writes a file writes alone."""

    by_ranges: ClassVar[frozenset[TableName]] = frozenset()
    key_walk: ClassVar[None] = None

    path: str

    def snapshot(self, tables: Sequence[TableDef], waiting: Waiting) -> ToySnapshot:
        return ToySnapshot.take(self.path)


@dataclass(frozen=True, slots=True)
class ToyReader:
    """Whole tables out of the copy."""

    ticket: Json

    def __enter__(self) -> ToyReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Each read closes the file that it opened."""

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
            texts = zip(
                *(rows.column(name).cast(pa.string()).to_pylist() for name in schema.key), strict=True
            )
            wanted = [text in set(keys) for text in texts]
            yield number, rows.filter(pa.array(wanted, pa.bool_()))

    def _rows(self, columns: Sequence[Column], table: TableName) -> pa.Table:
        asked = ", ".join(f'"{column.name}"' for column in columns)
        with database.open_file(self.ticket["file"]) as connection:
            rows = connection.execute(f'SELECT {asked} FROM "{table.name}"').fetchall()
        arrays = [pa.array([row[i] for row in rows], column.type) for i, column in enumerate(columns)]
        fields = [pa.field(c.name, c.type, nullable=c.nullable) for c in columns]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields))


# --- a mirror -----------------------------------------------------------------------------------


@dataclass(slots=True)
class ToyConnection:
    """The file, opened."""

    address: ToyAddress
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
            database.prove(self.session, identity["history"], 0)
        return ToyMirror(self)


@dataclass(frozen=True, slots=True)
class ToyMirror:
    """The tables of a file that have our triggers, and its change table."""

    captures: ClassVar[None] = None  # triggers are the user's to make (`database.prepare`)

    connection: ToyConnection

    def establish(self, order: StreamOrder, waiting: Waiting) -> StreamOrigin:
        start, tables = self.end(), among(tables_of(self.connection.session), order.names)
        return StreamOrigin(self.connection.identity, {}, start, fresh=True, begun_at=None, tables=tables)

    def confirm(self, identity: Json, received_until: Position) -> Successor | None:
        database.prove(self.connection.session, identity["history"], change_of(received_until))
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
        return SchemaCheck(self.end(), 0, changes, news={}, locked_tables=frozenset())

    def find_unmirrored(
        self, patterns: Sequence[str], mirrored_tables: Collection[TableName]
    ) -> dict[TableName, HeadraceError | None]:
        now = tables_of(self.connection.session)
        found = select(patterns, now.defs).names
        return {name: now.errors.get(name) for name in found if name not in mirrored_tables}

    def end(self) -> Position:
        return position(database.newest(self.connection.session))

    def clock(self) -> ClockReading | None:
        return None  # triggers note the time of a statement, and its commit may come at any time later

    def is_quiet(self, start: Position, stop: Position) -> bool:
        return not start < stop

    def health(self, limit: int | None = None) -> Health:
        return Health(lines=(f"{database.newest(self.connection.session):,} changes are in the file",))

    def measure(self, tables: Sequence[TableDef]) -> ToySizes:
        count = self.connection.session.execute
        rows = {t.name: count(f'SELECT count(*) FROM "{t.name.name}"').fetchone()[0] for t in tables}
        return ToySizes({name: TableSize(64 * number, number) for name, number in rows.items()})

    def plan_copy(self, order: CopyOrder) -> ToyPlan:
        return ToyPlan(self.connection.address.path)

    def snapshot(self, tables: Sequence[TableDef], readers: int, seconds: float) -> ToySnapshot:
        return ToySnapshot.take(self.connection.address.path)


# --- the kind -----------------------------------------------------------------------------------


class ToySource:
    """SQLite files with a change table."""

    drop: ClassVar[None] = None  # nothing is made in the file
    drop_reader: ClassVar[None] = None
    key_bounds: ClassVar[None] = None

    def address(self, text: str) -> ToyAddress:
        return ToyAddress(os.path.abspath(text.removeprefix("toy://")))

    def plan(self, lake_id: str, name: str, options: Mapping[str, str]) -> Json:
        return dict[str, Any]()

    def describe(self, upstream: Json) -> UpstreamFacts:
        return UpstreamFacts()

    def examine(self, address: Address, wish: Wish) -> CheckReport:
        with database.open_file(address.text.removeprefix("toy://")) as connection:
            now = tables_of(connection)
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
        path = address.text.removeprefix("toy://")
        return ToyConnection(ToyAddress(path), database.connect(path))

    def reader(self, address: Address, identity: Json, ticket: Json, *, role: str) -> ToyReader:
        return ToyReader(ticket)

    def decoder(self, reference: int = 0) -> ToyDecoder:
        return ToyDecoder()


SOURCE: Source = ToySource()
