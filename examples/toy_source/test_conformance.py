"""The list that every source passes, on the toy (docs/write-a-source.md)."""

from __future__ import annotations

import itertools
import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.names import TableName
from headrace_testing.canonical import Rows, lake_rows
from headrace_testing.conformance.faults import *
from headrace_testing.conformance.mirror import *
from headrace_testing.conformance.place import Place, SourceUnderTest, execute
from headrace_testing.conformance.proofs import *
from headrace_testing.conformance.rows import *
from headrace_testing.conformance.tables import *
from headrace_testing.oracle import registry
from headrace_testing.oracle.contract import Dialect, Disconnected, Login, Recording, Rejected, Values
from toy_source import database

DIALECT = Dialect('"', {"text": "TEXT", "key_text": "TEXT"}, whole_rows="", out_of_line="")
TYPES = {"INTEGER": pa.int64(), "INT": pa.int64(), "BIGINT": pa.int64()}
_COUNTERS = itertools.count(1)


def open_file(url: str) -> sqlite3.Connection:
    return sqlite3.connect(url.removeprefix("toy://"), timeout=30, isolation_level=None)


@dataclass
class ToySession:
    """A person at the file: who makes or alters a table also has its changes written down."""

    connection: sqlite3.Connection
    dialect: Dialect = DIALECT

    def execute(self, statement: str, values: Values | None = None) -> None:
        self.rows(statement, values)

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        for row in rows:
            self.rows(statement, row)

    def rows(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]:
        text = re.sub(r"%\((\w+)\)s", r":\1", statement).replace("%s", "?").removesuffix(" FOR UPDATE")
        if altered := re.match(r"ALTER TABLE (\w+) DROP COLUMN", text):  # SQLite refuses it under triggers
            for trigger in database.triggers(self.connection, altered[1]):
                self.connection.execute(f"DROP TRIGGER {trigger}")
        try:
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
            return self.connection.execute(text, values or ()).fetchall()
        except sqlite3.IntegrityError as error:
            raise Rejected(str(error)) from error
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
            raise Disconnected(str(error)) from error

    def make_counter(self, name: str) -> None: ...

    def next_number(self, counter: str) -> int:
        return next(_COUNTERS)

    def commit(self) -> None:
        if self.connection.in_transaction:
            database.prepare(self.connection, *tables(self.connection))
            self.connection.execute("COMMIT")

    def rollback(self) -> None:
        if self.connection.in_transaction:
            self.connection.execute("ROLLBACK")


def tables(connection: sqlite3.Connection) -> list[str]:
    """The user's tables."""
    found = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    return [name for (name,) in found if not name.startswith(("sqlite_", "headrace_"))]


@dataclass(frozen=True)
class ToyMoment:
    """The state that a read transaction sees."""

    connection: sqlite3.Connection

    def rows(self, table: TableName) -> Rows:
        found = self.connection.execute(f"SELECT * FROM {database.quoted(table.name)}")
        names, rows = [each[0] for each in found.description], found.fetchall()
        kinds = self.connection.execute(f"PRAGMA table_info({database.quoted(table.name)})").fetchall()
        types = [TYPES.get(kind[2].upper(), pa.string()) for kind in kinds]
        columns = [pa.array([row[i] for row in rows], kind) for i, kind in enumerate(types)]
        return lake_rows(pa.table(columns, names))

    def key(self, table: TableName) -> tuple[str, ...]:
        rows = self.connection.execute(f"PRAGMA table_info({database.quoted(table.name)})").fetchall()
        return tuple(row[1] for row in sorted(rows, key=lambda row: row[5]) if row[5])


class ToyOracle:
    """SQLite as the judge of its mirror."""

    dialect = DIALECT

    @contextmanager
    def moment(self, url: str) -> Iterator[ToyMoment]:
        with closing(open_file(url)) as connection:
            connection.execute("BEGIN")
            yield ToyMoment(connection)

    def record(self, url: str, tables: Iterable[str]) -> Recording:
        with self.moment(url) as moment:
            position = database.end(moment.connection)
            return Recording(position, {name: moment.rows(TableName.parse(name)) for name in tables})

    @contextmanager
    def session(self, url: str) -> Iterator[ToySession]:
        with closing(open_file(url)) as connection:
            yield ToySession(connection)

    def login(self, url: str) -> Login:
        return Login(url, {})


registry.register("toy", ToyOracle())


@dataclass(frozen=True)
class ToyPlace:
    """A file."""

    path: Path
    password: str | None = None

    @property
    def url(self) -> str:
        return f"toy://{self.path}"

    owner_url = url

    def table(self, name: str) -> TableName:
        return TableName("main", name)

    def lose_position(self) -> None:
        with closing(open_file(self.url)) as connection:
            connection.execute("DELETE FROM headrace_change")

    @contextmanager
    def elsewhere(self) -> Iterator[Place]:
        yield made(self.path.with_suffix(".other"))

    def barred(self) -> AbstractContextManager[None]:
        raise NotImplementedError

    def unreadable(self, table: str) -> AbstractContextManager[None]:
        raise NotImplementedError


def made(path: Path) -> ToyPlace:
    with closing(open_file(f"toy://{path}")) as connection:
        connection.execute("PRAGMA journal_mode = wal")
        database.prepare(connection)
    return ToyPlace(path)


@contextmanager
def place(folders: pytest.TempPathFactory) -> Iterator[Place]:
    yield made(folders.mktemp("toy") / "shop.db")


NO_USERS = "a file has no users"
TOY = SourceUnderTest(
    kind="toy",
    server="tmp_path_factory",
    place=place,
    lost="TOY_HISTORY_LOST",
    elsewhere="TOY_ANOTHER_FILE",
    lacks={
        "shape_no_key": "a table needs a key",
        "shape_turned_key": "its columns are INTEGER or TEXT",
        "shape_of_each_type": "its columns are INTEGER or TEXT",
        "late_commits": "one transaction writes at a time",
        "truncate": "SQLite has no TRUNCATE",
        "test_each_committed_state_can_be_read_again": "transactions that are seen together have one time",
        "test_a_login_that_is_taken_away_and_given_back_ends_nothing": NO_USERS,
        "test_a_run_that_only_catches_up_ends_where_a_table_may_not_be_read": NO_USERS,
    },
)


@pytest.fixture(scope="session")
def source() -> SourceUnderTest:
    return TOY


def test_an_older_copy_of_the_file_is_not_followed_however_much_is_written_to_it(mirror: Mirror) -> None:
    place = mirror.place
    assert isinstance(place, ToyPlace)
    execute(place, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with closing(open_file(place.url)) as connection:
        connection.execute("VACUUM INTO ?", [f"{place.path}.copy"])
    execute(place, "INSERT INTO t VALUES (2), (3)")
    last = mirror.once().at().mark
    for leftover in ("-wal", "-shm"):
        Path(f"{place.path}{leftover}").unlink(missing_ok=True)
    Path(f"{place.path}.copy").rename(place.path)
    execute(place, "INSERT INTO t VALUES (4), (5)", "INSERT INTO t VALUES (6)")
    assert mirror.stops().code == "TOY_HISTORY_LOST"
    assert mirror.lake.at().mark.versions == last.versions
