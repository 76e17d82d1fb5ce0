"""A lake whose source is changed under it: what the tests of a lost position share.

`Source.begin` mirrors two tables and gives them a history; then a test loses the place in the stream, each
loss done for real, with changes before, between and after; `Source.heal` is what must follow.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import headrace
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.ingest.supervisor import Feed, Receiver
from headrace.lake.format import layout
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import TableRecord, source_of, tables_of
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.session.log_end import wal_end
from headrace_testing import validators
from headrace_testing.postgres import Database, Server
from headrace_testing.postmaster import wait_for
from tests.background import repeat
from tests.integration.pipeline.refused import configuration, upstream
from tests.records import upstream_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = """
CREATE TABLE plain (id int PRIMARY KEY, s text);
CREATE TABLE whole (id int PRIMARY KEY, s text);
ALTER TABLE whole REPLICA IDENTITY FULL;
INSERT INTO plain SELECT i, 'row ' || i FROM generate_series(1, 50) i;
INSERT INTO whole SELECT * FROM plain;
"""
CHANGE = """
UPDATE plain SET s = '{0}' WHERE id % 10 = 1; DELETE FROM plain WHERE id = {1};
UPDATE whole SET s = '{0}' WHERE id % 10 = 1; INSERT INTO whole VALUES (100 + {1}, '{0}')
"""
DROP_SLOTS = """
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()
"""
SETTINGS: dict[str, Any] = {"wal_sender_timeout": "10s", "max_wal_size": "64MB"}
FOR_A_PERSON = ("PG_PUBLICATION_MISSING", "PG_TIMELINE_CHANGED", "PG_ANOTHER_SERVER")
_SWITCH = "SELECT pg_logical_emit_message(true, 'x', 'y'), pg_switch_wal()"
_LOST = "SELECT wal_status FROM pg_replication_slots"
_ACKNOWLEDGED = """
SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE database = current_database()
"""


class Source:
    """One lake, and a server whose place in it can be lost."""

    def __init__(self, path: Path, engine: SparkSession | None, database: Database, **options: Any) -> None:
        self.path = path
        self.spark = engine
        self.database = database
        self.options = options
        self.number = 0

    @property
    def lake(self) -> Lake:
        return Lake(self.path)

    @property
    def slot(self) -> str:
        slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_type = 'logical'"
        [(name,)] = self.database.execute(slots)
        return str(name)

    @property
    def publication(self) -> str:
        [(name,)] = self.database.execute("SELECT pubname FROM pg_publication")
        return str(name)

    @property
    def kept(self) -> list[str]:
        """The files in which the stream is kept for tables that are being copied."""
        return list(self.lake.store.list(layout.late_folder("main")))

    def record(self, table: str) -> TableRecord:
        """Read the catalog's record of a table."""
        [found] = [r for name, r in tables_of(self.lake.catalog()).items() if name.name == table]
        return found

    def change(self) -> None:
        self.number += 1
        self.database.execute(CHANGE.format(f"change {self.number}", self.number), user="app")

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Rows come all the time: what is in a copy and what is in the stream is told apart, or it fails."""
        numbers = itertools.count(1_000_000 * self.number)

        def write() -> None:
            number = next(numbers)
            for table in ("plain", "whole"):
                connection.execute(f"INSERT INTO {table} VALUES ({number}, 'written')".encode())

        with self.database.connect(user="app") as connection:
            connection.autocommit = True
            with repeat(write, every=0.02):
                yield

    def once(self, *, reconcile: bool = False, **options: Any) -> None:
        source = {"url": self.database.url(user="app"), **self.options, **options}
        headrace.mirror(configuration(self.path, **source), spark=self.spark, once=True, reconcile=reconcile)

    def begin(self) -> None:
        """Mirrored, with a history."""
        self.once()
        self.change()
        self.once()

    def stops(self, code: str, **options: Any) -> HeadraceError:
        """A run ends with this error, which says where it stood; nothing is changed, or made anew."""
        last, made = self.lake.marks()[-1], upstream(self.database)
        before = {name: self.lake.at().arrow(name) for name in last.versions}
        with pytest.raises(HeadraceError) as caught:
            self.once(**options)
        error = caught.value
        assert error.code == code
        assert "--reconcile" in error.hint
        assert last.frontier in (error.detail or "")
        after = self.lake.marks()[-1]
        assert (after.frontier, after.versions) == (last.frontier, last.versions)
        assert {name: self.lake.at().arrow(name) for name in last.versions} == before
        assert upstream(self.database) == made
        return error

    def heal(self, code: str, *, joining: frozenset[str] = frozenset()) -> None:
        """The loss stops the source and is named; on request it is healed in one mark, with its history.

        `joining` are the tables that were in no mark before it.
        """
        last = self.lake.marks()[-1]
        before = {name: self.lake.at().arrow(name) for name in last.versions}
        error = self.stops(code)
        assert isinstance(error, Misconfigured) == (code in FOR_A_PERSON)
        self.once(reconcile=True)
        self.proved()
        healed = next(mark for mark in self.lake.marks() if mark.time > last.time)
        assert set(healed.versions) == set(last.versions) | joining
        for name, rows in before.items():
            assert self.lake.at(epoch=last.epoch).arrow(name) == rows
            assert self.lake.at(epoch=healed.epoch).arrow(name) != rows
        for name in healed.versions:
            with pytest.raises(HeadraceError) as gap:
                self.lake.at(position=Position(healed.time - 4, "")).arrow(name)
            assert gap.value.code == "LAKE_TABLE_NOT_EXACT"
        self.goes_on(healed.time)

    def goes_on(self, time: int) -> None:
        """Check that a later change is followed and acknowledged, and that no unfinished work is left."""
        self.change()
        self.once()
        self.proved()
        source = source_of(self.lake.catalog())
        assert source is not None
        [(acknowledged,)] = self.database.execute(_ACKNOWLEDGED)
        assert upstream_of(source).position(Lsn.parse(acknowledged)).time > time
        assert self.kept == []
        assert not [key for key in self.lake.catalog() if key.startswith(("staged/", "late/"))]
        assert list((self.path / layout.staged_tables_folder("main")).rglob("*.parquet")) == []

    def proved(self) -> None:
        found = validators.exact(self.lake, self.database.url(), values=True)
        assert found == [], found
        assert validators.consistent(self.lake) == []


def drop_slots(database: Database) -> None:
    """Drop the slots of a database; those of a run that was killed are let go in a moment.

    A receiver that was being started then may come for its slot once more, and go.
    """

    def dropped() -> bool:
        try:
            database.execute(DROP_SLOTS)
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_for(dropped, "slots that nobody uses, dropped")


def filled(server: Server) -> Iterator[Database]:
    """A database of the server with the tables; the server may have been left stopped by a test before."""
    server.start()
    with server.database() as made:
        made.execute(TABLES, user="app")
        yield made


def write_log(server: Server, over: Callable[[], bool] | None = None) -> None:
    """Fill the log, a segment and a checkpoint at a time, until the slot is lost (or it is over)."""
    lost = over or (lambda: server.execute(_LOST) == [("lost",)])

    def once() -> bool:
        server.execute(_SWITCH)
        server.execute("CHECKPOINT")
        return lost()

    wait_for(once, "the slot is lost")


def spool_ahead(source: Source) -> None:
    """Receive all that there is, as a run does whose driver comes to nothing."""
    record = source_of(source.lake.catalog())
    assert record is not None
    address = PostgresAddress.parse(source.database.url(user="app"))
    with closing(connect(address, role="test")) as connection:
        identity, end = identify(connection), wal_end(connection)
    spool = source.path / "_headrace" / "spool" / "main"
    feed = Feed(record.kind, address, to_record(identity), record.upstream, spool, streaming=True)
    receiver = Receiver(feed)
    receiver.start(source.lake.marks()[-1].position)
    try:
        wait_for(lambda: receiver.poll().frontier >= int(end), "the spool has all")
    finally:
        receiver.stop()
