"""Transactions that are streamed while they run: the lake becomes the same as without streaming.

Two lakes mirror one database, with `streaming = "auto"` and with `"off"`. The server's work is random, by
seed: several transactions at once, trees of savepoints, rollbacks, layouts that change inside.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from headrace.decode.kernel import Ints
from headrace.lake.store.contract import Store
from headrace.pipeline.state.records import source_of
from headrace.pipeline.stream import batches, eager
from headrace.pipeline.tasks import runs
from headrace.status.picture import pictures
from headrace_testing import validators
from headrace_testing.postgres import Database, postgres
from tests.integration.pipeline.conftest import Mirrors
from tests.records import upstream_of

TABLES = {
    "keyed": "(id int PRIMARY KEY, n int, s text)",
    "whole": "(id int PRIMARY KEY, n int, s text)",
    "bag": "(id int, n int, s text)",
    "emptied": "(id int PRIMARY KEY, n int, s text)",  # by the first session, which has it for itself
}
SHARED = ("keyed", "whole", "bag")
LOW = 100_000
BIG = "(SELECT string_agg(md5(i::text || g), '') FROM generate_series(1, 300) g)"


def prepare(database: Database, setting: str) -> None:
    """The tables, and a server that streams every change at once, or all that is over 64 kB."""
    for name, columns in TABLES.items():
        database.execute(f"CREATE TABLE {name} {columns}", user="app")
        database.execute(f"INSERT INTO {name} SELECT i, i, 'first' FROM generate_series(1, 50) i", user="app")
    database.execute("ALTER TABLE whole REPLICA IDENTITY FULL; ALTER TABLE bag REPLICA IDENTITY FULL")
    database.execute("ALTER TABLE keyed ALTER s SET STORAGE EXTERNAL")
    database.execute(f"ALTER DATABASE {database.name} SET {setting}")


@dataclass
class Session:
    """One connection that does something random at each step."""

    connection: psycopg.Connection[Any]
    random: random.Random
    low: int  # its own range of keys: sessions never wait for one another
    savepoints: list[str] = field(default_factory=list)
    open: bool = False

    def step(self) -> None:
        if not self.open:
            self.connection.execute("BEGIN")
            self.open = True
        kind = self.random.choices(
            ["change", "save", "back", "release", "commit", "rollback"], [60, 12, 8, 5, 10, 5]
        )[0]
        if kind == "change":
            self.change()
        elif kind == "save":
            self.savepoints.append(f"s{self.random.randrange(10**9)}")
            self.connection.execute(f"SAVEPOINT {self.savepoints[-1]}")
        elif kind in ("back", "release") and self.savepoints:
            at = self.random.randrange(len(self.savepoints))
            verb = "ROLLBACK TO" if kind == "back" else "RELEASE"
            self.connection.execute(f"{verb} SAVEPOINT {self.savepoints[at]}")
            del self.savepoints[at + (kind == "back") :]
        elif kind in ("commit", "rollback"):
            self.end(kind)

    def end(self, kind: str) -> None:
        if self.open:
            self.connection.execute(kind)
        self.open = False
        self.savepoints.clear()

    def change(self) -> None:
        """Some rows inserted, updated, moved to other keys, or deleted; some values lie out of line."""
        mine = (*SHARED, "emptied") if self.low == LOW else SHARED
        table = self.random.choice(mine)
        first = self.low + self.random.randrange(2000)
        last = first + self.random.choice([0, 3, 40, 300])
        where = f"id BETWEEN {first} AND {last}"
        free = f"NOT EXISTS (SELECT 1 FROM {table} WHERE id = i)"
        text = BIG if self.random.random() < 0.1 else f"repeat(md5(i::text), {self.random.randrange(4)})"
        match self.random.randrange(5):
            case 0 | 1:
                series = f"generate_series({first}, {last}) i WHERE {free}"
                self.connection.execute(f"INSERT INTO {table} SELECT i, {last}, {text} FROM {series}")
            case 2:
                self.connection.execute(f"UPDATE {table} SET n = n + 1 WHERE {where}")
            case 3:
                self.connection.execute(f"DELETE FROM {table} WHERE {where} AND n % 2 = 0")
            case 4 if table == "emptied":
                self.connection.execute("TRUNCATE emptied")
            case _:
                moved = f"id + 3000 FROM (SELECT id AS o FROM {table} WHERE {where} LIMIT 1) x"
                there = f"NOT EXISTS (SELECT 1 FROM {table} WHERE id = x.o + 3000)"
                self.connection.execute(f"UPDATE {table} SET id = {moved} WHERE id = x.o AND {there}")


def shake(database: Database, seed: int, steps: int, sessions: int = 3) -> None:
    """Random transactions in several sessions; some are left open until the end."""
    chance = random.Random(seed)
    with ExitStack() as stack:
        made = [
            Session(stack.enter_context(database.connect(user="app")), chance, LOW * (n + 1))
            for n in range(sessions)
        ]
        for _ in range(steps):
            chance.choice(made).step()
        for session in made:
            session.end(chance.choice(["commit", "rollback"]))


@pytest.fixture
def database(version: str) -> Iterator[Database]:
    """A database of a server of this version."""
    with postgres(version=version) as server, server.database() as made:
        yield made


@pytest.fixture
def twin(mirrors: Mirrors) -> Mirrors:
    """Mirror the same database into another lake, whole transactions only."""
    path = mirrors.path.with_name("twin")
    return Mirrors(mirrors.database, path, mirrors.spark, {"streaming": "off"} | mirrors.options)


SETTINGS = {
    "immediate": "debug_logical_replication_streaming = immediate",
    "64kB": "logical_decoding_work_mem = '64kB'",
}


def in_full(*case: Any) -> Any:
    return pytest.param(*case, marks=pytest.mark.full)


@pytest.mark.parametrize(
    ("version", "setting", "driver_epochs", "layered"),
    [
        ("18", "immediate", 20_000, False),
        ("18", "64kB", 0, True),
        in_full("18", "64kB", 0, False),
        in_full("18", "immediate", 0, True),
        in_full("17", "64kB", 20_000, True),
        in_full("16", "immediate", 0, False),
        in_full("15", "64kB", 0, True),
        in_full("15", "64kB", 20_000, False),
    ],
)
def test_what_is_streamed_becomes_what_comes_whole(
    mirrors: Mirrors,
    twin: Mirrors,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
    setting: str,
    driver_epochs: int,
    layered: bool,
) -> None:
    if layered:  # small transactions are treated as large ones are
        monkeypatch.setattr(batches, "ALONE_BYTES", 2000)
        monkeypatch.setattr(eager, "PIECE_BYTES", 20_000)
    prepare(database, SETTINGS[setting])
    mirrors.options["driver_epochs"] = driver_epochs
    mirrors.once()
    twin.once()
    layered_epochs = 0
    for round_number in range(3):
        shake(database, seed * 100 + round_number, steps=120)
        assert validators.exact(mirrors.once(), database.url(), values=True) == []
        [source] = pictures(str(mirrors.path))
        layered_epochs += source.status.epochs.from_sorted_runs if source.status.epochs else 0
    assert validators.definite(mirrors.lake) == []
    assert streamed_transactions(mirrors) > 3
    assert (layered_epochs > 0) == layered
    twin.once()
    assert streamed_transactions(twin) == 0
    for table in TABLES:
        streamed, whole = mirrors.lake.history(f"public.{table}"), twin.lake.history(f"public.{table}")
        assert streamed.num_rows > 100
        assert rows(streamed) == rows(whole)


@pytest.mark.parametrize("version", ["18"])
def test_what_was_laid_down_may_be_lost_before_the_commit_is_folded(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    lost: list[str] = []

    def losing(store: Store, found: Sequence[runs.Layer], rolled_back: Ints) -> runs.AbortedChanges:
        for layer in found:
            store.delete(layer.key)
            lost.append(layer.key)
        return runs.struck_of(store, found, rolled_back)

    monkeypatch.setattr(batches, "ALONE_BYTES", 2000)
    monkeypatch.setattr(eager, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(eager, "struck_of", losing)
    prepare(database, SETTINGS["64kB"])
    mirrors.once()
    shake(database, seed, steps=120)
    assert validators.exact(mirrors.once(), database.url(), values=True) == []
    assert validators.definite(mirrors.lake) == []
    assert lost


def streamed_transactions(mirrors: Mirrors) -> int:
    """Count the transactions that the server has streamed to this mirror's slot, by its own count."""
    source = source_of(mirrors.lake.catalog())
    assert source is not None
    [(count,)] = mirrors.database.execute(
        "SELECT stream_txns FROM pg_stat_replication_slots WHERE slot_name = %s", [upstream_of(source).slot]
    )
    return int(count)


def rows(history: Any) -> list[Any]:
    """Histories as they can be compared: all of their columns, ordinals too, in one order."""
    return sorted(map(str, history.to_pylist()))
