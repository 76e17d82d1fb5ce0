"""The lake keeps the stream of tables that wait for their copy, and the source forgets it.

The copy stands between a snapshot and its end while rows change, move and go, a table is truncated, and a
large transaction is open across it all. The tests keep everything at once; a run waits a little. Here every
second file takes in the one before it; in a run, sixteen have to be there first.
"""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core import failpoint
from headrace.lake.format import layout
from headrace.pipeline.commands import ask
from headrace.pipeline.state import records
from headrace.pipeline.state.table_state import State
from headrace.sources.postgres.position import Lsn
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up

pytestmark = pytest.mark.server

TABLES = """
CREATE TABLE keyed (id int PRIMARY KEY, s text);
CREATE TABLE whole (id int PRIMARY KEY, s text);
CREATE TABLE bag (id int, s text);
CREATE TABLE emptied (id int PRIMARY KEY, s text);
ALTER TABLE whole REPLICA IDENTITY FULL;
ALTER TABLE bag REPLICA IDENTITY FULL;
ALTER TABLE emptied REPLICA IDENTITY FULL;
"""
NAMES = ("keyed", "whole", "bag", "emptied")
FILL = "INSERT INTO {0} SELECT i, 'row ' || i FROM generate_series(1, 200) i"
# Rows come, change, move to another key and go.
CHANGE = """
INSERT INTO {0} VALUES ({1} + 1000, 'new');
UPDATE {0} SET s = s || ' {1}' WHERE id % 7 = {1} % 7;
UPDATE {0} SET id = -id WHERE id = {1};
DELETE FROM {0} WHERE id = {1} + 50
"""
BY: dict[str, dict[str, Any]] = {
    "slot": {"handoff": "slot"},
    "xid": {"handoff": "xid"},
    "chunks": {"handoff": "chunks", "chunk_bytes": 4_000, "snapshot_connections": 1},
}
POINT = {"slot": "copy.range.after", "xid": "copy.range.after", "chunks": "copy.chunk.after"}
# Each fails once, while the stream is kept or while it is taken.
KEEPING = ("late.keep.before", "late.keep.after", "lake.plan.after", "lake.mark.before", "acknowledge.before")
TAKING = ("lake.table.after", "late.replay.before", "late.replay.after")
OFTEN = ("late.replay.after",)
FAILING = [
    *(
        pytest.param("slot", each, marks=() if each in OFTEN else pytest.mark.full)
        for each in (*KEEPING, *TAKING, "late.remove.before")
    ),
    *(pytest.param("chunks", each, marks=pytest.mark.full) for each in (*OFTEN, "copy.chunk.after")),
]


def first(handoff: str) -> list[Any]:
    """One handoff in every run, the others in the full one."""
    return [handoff, *(pytest.param(each, marks=pytest.mark.full) for each in BY if each != handoff)]


@pytest.fixture
def mirrors(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> Mirrors:
    monkeypatch.setattr("headrace.pipeline.stream.cadence.KEEP_SECONDS", 0.0)
    monkeypatch.setattr(records, "LATE_FILES_TOGETHER", 2)
    mirrors.database.execute(f"ALTER DATABASE {mirrors.database.name} SET logical_decoding_work_mem = '64kB'")
    mirrors.database.execute(TABLES + ";".join(FILL.format(name) for name in NAMES), user="app")
    return mirrors


def _change(database: Database, number: int) -> None:
    database.execute(";".join(CHANGE.format(name, number) for name in NAMES), user="app")


def _slot(database: Database) -> tuple[Lsn, Lsn]:
    """From where the server has to keep its log for us, and what we acknowledged."""
    slot = "pg_replication_slots WHERE NOT temporary AND database = current_database()"
    asked = f"SELECT restart_lsn::text, confirmed_flush_lsn::text FROM {slot}"
    [(restart, confirmed)] = database.execute(asked)
    return Lsn.parse(restart), Lsn.parse(confirmed)


def _end(database: Database) -> Lsn:
    """Behind all that was committed, and before one commit more."""
    [(end,)] = database.execute("SELECT pg_log_standby_snapshot()::text")
    database.execute("INSERT INTO bag VALUES (0, 'tick')", user="app")
    return Lsn.parse(end)


def _is_acknowledged(database: Database) -> None:
    """Wait until the lake has all that was committed before, and the source knows."""
    end = _end(database)
    wait_for(lambda: _slot(database)[1] >= end, "the acknowledgement")


def _is_forgotten(database: Database) -> None:
    """Wait until the server need not keep what was committed before."""
    end = _end(database)

    def forgets() -> bool:
        _is_acknowledged(database)
        return _slot(database)[0] >= end

    wait_for(forgets, "the slot's restart position")


def _kept(mirrors: Mirrors) -> list[str]:
    return list(mirrors.lake.store.list(layout.late_folder("main")))


def _exact(mirrors: Mirrors) -> None:
    lake, url = mirrors.lake, mirrors.database.url()
    assert validators.exact(lake, url) == []
    assert validators.consistent(lake) == []
    assert _kept(mirrors) == []


def _recorded(mirrors: Mirrors, *names: str) -> validators.Recording:
    return validators.record(mirrors.database.url(), [f"public.{name}" for name in names])


def _start(mirrors: Mirrors) -> int:
    opened = next(mark for mark in mirrors.lake.marks() if mark.kind == "open")
    return opened.position.time


@pytest.mark.parametrize("handoff", first("slot"))
def test_the_source_forgets_its_log_while_a_first_copy_takes_its_time(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """And a table that is rewound is exact from the start of the stream on all the same."""
    database, recorded = mirrors.database, []
    with held_up(mirrors, POINT[handoff], "public.whole", monkeypatch, **BY[handoff]):
        begun = _slot(database)
        for number in (1, 2, 3):
            _change(database, number)
            _is_acknowledged(database)
            recorded.append(_recorded(mirrors, "whole", "bag"))
        _is_forgotten(database)
        assert all(now > then for now, then in zip(_slot(database), begun, strict=True))
        files = records.late_files_of(mirrors.lake.catalog()).values()
        assert max(file.level for file in files) > 0
        assert len({file.level for file in files}) == len(files)
        wait_for(lambda: len(_kept(mirrors)) == len(files), "the end of those that were taken in")
        assert mirrors.record("public.whole").state is State.PENDING
    _exact(mirrors)
    assert [mirrors.record(f"public.{name}").since for name in ("whole", "bag")] == [_start(mirrors)] * 2
    assert validators.exact_at(mirrors.lake, recorded, values=True) == []


@pytest.mark.parametrize("handoff", first("slot"))
def test_the_source_forgets_its_log_while_tables_are_copied_anew(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """The tables that are copied anew stay live, and marks show their changes."""
    database = mirrors.database
    mirrors.once()
    _change(database, 1)
    ask.ask(str(mirrors.path), "resync", {"tables": list(NAMES)}, url=database.url(user="app"))
    with held_up(mirrors, POINT[handoff], "public.whole", monkeypatch, **BY[handoff]):
        begun = _slot(database)
        for number in (2, 3):
            _change(database, number)
            _is_acknowledged(database)
        database.execute("TRUNCATE emptied; INSERT INTO emptied VALUES (1, 'again')", user="app")
        _is_acknowledged(database)
        _is_forgotten(database)
        assert all(now > then for now, then in zip(_slot(database), begun, strict=True))
        assert _kept(mirrors)
        assert -3 in mirrors.lake.at().arrow("public.keyed")["id"].to_pylist()
        assert mirrors.lake.at().arrow("public.emptied").num_rows == 1
    _exact(mirrors)
    for name in NAMES:
        compared = [row for row in mirrors.lake.history(f"public.{name}").to_pylist() if row["_xid"] == 0]
        assert compared == [], "the new copy is what the stream had made of the old one"


@pytest.mark.parametrize("handoff", first("chunks"))
def test_truncations_and_large_transactions_across_a_first_copy_are_kept_whole(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str
) -> None:
    """One commits while the copy stands, one is rolled back in part, one commits after it."""
    database = mirrors.database
    large = "INSERT INTO {0} SELECT i, repeat(md5(i::text), 8) FROM generate_series({1}, {1} + 2000) i"
    with (
        database.connect(user="app") as one,
        database.connect(user="app") as other,
        held_up(mirrors, POINT[handoff], "public.emptied", monkeypatch, **BY[handoff]) as held,
    ):
        for connection, first, names in ((one, 10_000, NAMES), (other, 20_000, NAMES[1:])):
            connection.execute("BEGIN")
            for name in names:
                connection.execute(large.format(name, first).encode())
                connection.execute(f"SAVEPOINT s; DELETE FROM {name}; ROLLBACK TO s".encode())
                connection.execute(f"UPDATE {name} SET id = id + 100000 WHERE id = {first}".encode())
        _change(database, 4)
        one.execute("COMMIT")
        _is_acknowledged(database)
        database.execute("TRUNCATE keyed; INSERT INTO keyed VALUES (5, 'again')", user="app")
        _is_acknowledged(database)
        assert _kept(mirrors)
        held.released.set()
        wait_for(lambda: len(mirrors.lake.at().mark.versions) == len(NAMES), "all in a mark")
        other.execute("COMMIT")
    mirrors.once()
    _exact(mirrors)
    assert 120_000 in mirrors.lake.at().arrow("public.whole")["id"].to_pylist()


def test_a_table_of_which_a_damaged_file_was_kept_stops_alone(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here it is a new copy that stops: its table stays what it was, and so do the others.

    A table that is copied as well, and for which the file holds nothing, goes on with its new copy.
    """
    database, damaged = mirrors.database, set[str]()

    def damage(name: str, place: str = "") -> None:
        for key in _kept(mirrors) if name == "late.replay.before" else ():
            damaged.add(key)
            path = mirrors.path / key
            path.write_bytes(b"\0" + path.read_bytes()[1:])

    mirrors.once()
    ask.ask(str(mirrors.path), "resync", {"tables": ["keyed", "emptied"]}, url=database.url(user="app"))
    monkeypatch.setattr("headrace.pipeline.loop.failpoint", damage)
    together = {"handoff": "slot", "snapshot_connections": 1}
    with held_up(mirrors, POINT["slot"], "public.keyed", monkeypatch, **together):
        database.execute(CHANGE.format("keyed", 1), user="app")
        _is_acknowledged(database)
    assert damaged
    _exact(mirrors)
    assert set(mirrors.lake.at().marks["main"].versions) == {f"public.{name}" for name in NAMES}
    assert not {"staged/public.keyed", "staged/public.emptied"} & mirrors.lake.catalog().keys()
    assert [mark.kind for mark in mirrors.lake.marks()].count("reconcile") == 1


@pytest.mark.parametrize(("handoff", "where"), FAILING)
def test_a_run_that_fails_while_the_stream_is_kept_or_taken_goes_on(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, handoff: str, where: str
) -> None:
    """In chunks it goes on with those that it has: what came since each was read is kept."""
    database = mirrors.database
    with held_up(mirrors, POINT[handoff], "public.whole", monkeypatch, **BY[handoff]) as held:
        recorded = [_recorded(mirrors, "whole", "bag")]
        _change(database, 1)
        _is_acknowledged(database)
        monkeypatch.setenv(failpoint.VARIABLE, f"{where}=error")
        for number in (2, 3):
            _change(database, number)
            recorded.append(_recorded(mirrors, "whole", "bag"))
        if where in KEEPING:
            wait_for(lambda: bool(held.fired) and held.stands > 1, "another attempt")
            _is_acknowledged(database)
        database.execute("DELETE FROM whole WHERE id = 77; DELETE FROM bag WHERE id = 77", user="app")
    assert held.fired
    monkeypatch.delenv(failpoint.VARIABLE)
    mirrors.once()  # a run that failed at its very end left files, of which the next one knows
    _exact(mirrors)
    assert [mirrors.record(f"public.{name}").since for name in ("whole", "bag")] == [_start(mirrors)] * 2
    assert validators.exact_at(mirrors.lake, recorded, values=True) == []


def test_a_first_copy_that_is_killed_again_and_again_needs_nothing_from_before(
    mirrors: Mirrors, program: Program
) -> None:
    """Each run has only what the runs before it kept: the source has forgotten that part of the stream."""
    database, recorded = mirrors.database, []
    url, alone = database.url(user="app"), {"snapshot_connections": 1}
    mirror = Mirrored(mirrors.path, url, "public.*", options=alone, program=program)
    try:
        for number in (1, 2):
            with mirror.held_up("copy.range.before@public.whole"):
                _change(database, number)
                recorded.append(_recorded(mirrors, "whole"))
                _has_written_much(database)
                mirror.kill()
            assert mirrors.record("public.whole").state is State.PENDING
            assert len(_kept(mirrors)) == number
        _change(database, 3)
        assert mirror.once() == 0, mirror.log()
    finally:
        mirror.close()
    _exact(mirrors)
    assert mirrors.record("public.whole").since == _start(mirrors)
    assert validators.exact_at(mirrors.lake, recorded, values=True) == []


def _has_written_much(database: Database) -> None:
    """So much that it is kept though no table follows the stream yet; wait until it is acknowledged."""
    end = _end(database)
    database.execute("SELECT pg_logical_emit_message(false, 'far', repeat('x', 17000000))")
    _end(database)
    wait_for(lambda: _slot(database)[1] >= end, "the acknowledgement")
