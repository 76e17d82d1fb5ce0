"""The receiver against a real server: what arrives, what is answered, what is refused."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError, Transient
from headrace.sources.postgres.position import PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.wire import LibpqWire, SocketWire
from headrace.sources.postgres.stream import slot_stream as stream_module
from headrace.sources.postgres.stream import synchronous
from headrace.sources.postgres.stream.slot_stream import SlotRequest, SlotStream
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.stream.harness import PUBLICATION, SLOT, Stage, plugin_messages, stage
from tests.places import place_at

pytestmark = pytest.mark.server

MEGABYTE = 1 << 20


@pytest.fixture
def staged(database: Database, tmp_path: Path) -> Iterator[Stage]:
    with stage(database, tmp_path) as made:
        yield made


def write(database: Database, first: int, transactions: int) -> None:
    """Small transactions over both tables, every fifth of them rolled back."""
    with database.connect() as connection:
        for i in range(first, first + transactions):
            with connection.transaction(force_rollback=i % 5 == 0):
                connection.execute("INSERT INTO t VALUES (%s, %s)", [i, "x" * (i % 200)])
                connection.execute("INSERT INTO u VALUES (%s, 'y')", [i])
                connection.execute("UPDATE t SET v = 'z' WHERE id = %s", [i - 1])


def write_many(database: Database, writers: int = 4, transactions: int = 150) -> None:
    threads = [
        threading.Thread(target=write, args=(database, i * 1_000_000, transactions)) for i in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_every_transaction_arrives_whole_and_in_order(staged: Stage) -> None:
    staged.start()
    write_many(staged.database)
    staged.database.execute("INSERT INTO t SELECT -i, repeat('b', 100) FROM generate_series(1, 50000) i")
    with staged.database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("DELETE FROM t WHERE id < -40000")
        connection.execute("PREPARE TRANSACTION 'p'")
    write(staged.database, 9_000_000, 20)
    staged.database.execute("COMMIT PREPARED 'p'")
    staged.database.execute("TRUNCATE u")
    staged.catch_up()
    expected = staged.expected()
    assert len(expected) > 480
    assert staged.spooled() == expected


def test_a_message_larger_than_every_buffer_passes(staged: Stage) -> None:
    staged.start()
    size = 40 * MEGABYTE
    staged.database.execute("INSERT INTO t VALUES (1, 'a'), (2, repeat('b', %s)), (3, 'c')", [size])
    staged.database.execute("INSERT INTO u VALUES (1, 'after')")
    staged.catch_up()
    first, second = staged.spooled()
    assert [len(message) > size for message in first[1]] == [False, False, True, False, False]
    assert len(second[1]) == 3


def test_a_restart_goes_on_where_it_was(staged: Stage) -> None:
    staged.start()
    write(staged.database, 1, 20)
    staged.catch_up()
    half = staged.spooled()
    staged.receiver.stop()
    write(staged.database, 100, 20)
    staged.start()
    staged.catch_up()
    assert staged.spooled() == staged.expected()
    assert staged.spooled()[: len(half)] == half


def test_what_came_before_a_publication_was_altered_comes_again(staged: Stage) -> None:
    """The server reads its catalog as it was then: no other history for a table that has left since."""
    staged.start()
    with staged.database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO u VALUES (1, 'open across')")
        staged.database.execute("INSERT INTO t VALUES (1, 'before')")
        staged.database.execute(f"ALTER PUBLICATION {PUBLICATION} DROP TABLE t")
        staged.database.execute("INSERT INTO t VALUES (2, 'after')")
        connection.execute("INSERT INTO t VALUES (3, 'after')")
        connection.execute("COMMIT")
    staged.database.execute("UPDATE u SET v = 'x'")
    staged.catch_up()
    staged.receiver.stop()
    before = staged.spooled()
    staged.database.execute(f"ALTER PUBLICATION {PUBLICATION} SET (publish = 'insert')")
    staged.start()
    staged.database.execute("INSERT INTO u VALUES (2, 'later')")
    staged.catch_up()
    assert [time for time, _ in before] == [time for time, _ in staged.spooled()[:3]]
    assert staged.spooled() == staged.expected()


def test_only_what_is_acknowledged_moves_the_slot(staged: Stage) -> None:
    staged.start()
    write(staged.database, 1, 20)
    staged.catch_up()
    before, _ = staged.slot()
    assert before == staged.frontier
    records = staged.reader.transactions(0)
    middle = place_at(int(records["end"][7]))
    staged.receiver.acknowledge(middle)
    wait_for(lambda: staged.slot()[0] == middle, "the slot moves to what is acknowledged")
    last = place_at(int(records["end"][-1]))
    staged.receiver.acknowledge(last)
    staged.receiver.acknowledge(middle)  # never back
    staged.receiver.stop()
    assert staged.slot()[0] == last


def test_what_the_lake_holds_is_not_spooled_again(staged: Stage) -> None:
    staged.start()
    write(staged.database, 1, 20)
    staged.catch_up()
    staged.receiver.stop()
    held = place_at(int(staged.reader.transactions(0)["end"][9]))
    staged.vary(folder=staged.feed.folder.parent / "another")  # as on a new machine
    staged.start(held)
    staged.catch_up()
    assert staged.spooled() == staged.expected()[10:]


def test_nothing_is_acknowledged_before_the_driver_says_that_it_is_durable(staged: Stage) -> None:
    staged.start()
    write(staged.database, 1, 20)
    staged.catch_up()
    staged.receiver.stop()
    newest_mark = place_at(int(staged.reader.transactions(0)["end"][-1]))
    staged.start(newest_mark)
    staged.catch_up()
    heard = "SELECT write_lsn >= %s::pg_lsn FROM pg_stat_replication WHERE pid = %s"
    _, pid = staged.slot()
    wait_for(lambda: staged.database.execute(heard, [str(newest_mark), pid]) == [(True,)], "feedback")
    assert staged.slot()[0] == staged.frontier
    staged.receiver.acknowledge(newest_mark)
    wait_for(lambda: staged.slot()[0] == newest_mark, "the slot moves to what is acknowledged")


def test_an_idle_source_and_unrelated_traffic_advance_the_frontier(staged: Stage) -> None:
    staged.start()
    for i in range(3):
        staged.database.execute("INSERT INTO other SELECT generate_series(1, 5000)")
        with staged.database.server.connect() as connection:  # another database
            connection.execute(f"CREATE TABLE unrelated_{i} AS SELECT generate_series(1, 1000)")
            connection.execute(f"DROP TABLE unrelated_{i}")
        staged.catch_up()
    assert staged.spooled() == []
    assert staged.reader.newest() is not None
    frontier = place_at(staged.reader.frontier() or 0)
    staged.receiver.acknowledge(frontier)
    wait_for(lambda: staged.slot()[0] == frontier, "the slot of an idle source advances")


def test_an_open_transaction_holds_the_frontier_back(staged: Stage) -> None:
    staged.start()
    with staged.database.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO t VALUES (1, 'open')")
        staged.catch_up()
        frontier = staged.reader.frontier()
        connection.execute("COMMIT")
    staged.catch_up()
    (record,) = staged.reader.transactions(0)
    assert record["time"] >= frontier


def test_the_server_is_answered_while_the_spool_is_full_and_nobody_listens(
    database: Database, tmp_path: Path
) -> None:
    database.execute(f"ALTER DATABASE {database.name} SET wal_sender_timeout = '4s'")
    with stage(database, tmp_path, limit_bytes=MEGABYTE) as staged:
        staged.start()
        _, pid = staged.slot()
        fill = "INSERT INTO t SELECT i, repeat(md5(i::text), 100) FROM generate_series(%s::int, %s::int) i"
        for i in range(30):  # 96 MB: more than a segment, so that the driver has something to free
            database.execute(fill, [i * 1000, i * 1000 + 999])
        wait_for(lambda: staged.receiver.poll().full, "the spool is full")
        before = staged.receiver.poll().received_bytes
        # Twice the server's patience, by the server's clock; the driver reads nothing meanwhile.
        ((limit,),) = database.execute("SELECT clock_timestamp() + interval '8 seconds'")
        heard = "SELECT count(*) FROM pg_stat_replication WHERE pid = %s AND reply_time > %s"
        wait_for(lambda: bool(database.execute(heard, [pid, limit])[0][0]), "the server is still answered")
        assert staged.receiver.poll().received_bytes == before
        found: list[int] = []
        reader = staged.reader

        def drained() -> bool:
            staged.receiver.poll()
            records = reader.transactions(0 if not found else after[0])
            if len(records):
                found.extend(records["time"].tolist())
                after[0] = int(records["stop"][-1])
                reader.discard(after[0])
            return len(found) == 30

        after = [0]
        wait_for(drained, "everything arrives once there is room")
        assert found == [time for time, _ in staged.expected()]
        assert staged.slot()[1] == pid


@pytest.mark.parametrize("way", [SocketWire, LibpqWire])
def test_both_wires_give_the_same_bytes(
    staged: Stage, way: type[SocketWire | LibpqWire], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "wire", way)
    write(staged.database, 1, 30)
    staged.database.execute("INSERT INTO t SELECT -i, repeat('b', 500) FROM generate_series(1, 5000) i")
    expected = [message for _, messages in staged.expected() for message in messages]
    got: list[bytes] = []
    address = PostgresAddress.parse(staged.database.url(user="app"))
    begin = PostgresTimeline().lsn(staged.frontier)
    wanted = SlotRequest(SLOT, (PUBLICATION,), begin, begin)

    def arrived() -> bool:
        got.extend(plugin_messages(stream.read(0.1)))
        stream.feedback(begin)
        return len(got) >= len(expected)

    with SlotStream.open(address, wanted) as stream:
        wait_for(arrived, "the whole stream is read")
    assert got == expected


def test_the_password_is_in_no_process_list(staged: Stage) -> None:
    staged.start()
    password = staged.database.server.password.encode()
    for file in ("cmdline", "environ"):
        assert password not in Path(f"/proc/{staged.receiver.pid}/{file}").read_bytes()
    assert password.decode() not in repr(staged.feed)


def test_the_receiver_does_not_outlive_the_driver(staged: Stage) -> None:
    driver = _driver(staged, patience=60.0)
    assert driver.stdin is not None
    assert driver.stdout is not None
    pid = int(driver.stdout.readline())
    wait_for(lambda: staged.slot()[1] is not None, "the receiver streams")
    driver.kill()
    driver.wait()
    driver.stdin.close()
    driver.stdout.close()
    wait_for(lambda: not Path(f"/proc/{pid}").exists() or _is_zombie(pid), "the receiver ends")
    wait_for(lambda: staged.slot()[1] is None, "the slot is free")


def test_the_receiver_goes_when_its_driver_is_frozen_and_stays_while_it_lives(staged: Stage) -> None:
    driver = _driver(staged, patience=4.0)
    begun = time.monotonic()
    wait_for(lambda: staged.slot()[1] is not None, "the receiver streams")
    wait_for(lambda: time.monotonic() > begun + 6, "longer than its patience")
    assert staged.slot()[1] is not None
    driver.send_signal(signal.SIGSTOP)
    try:
        wait_for(lambda: staged.slot()[1] is None, "the slot is free")
        staged.start()  # and so is the spool
    finally:
        driver.send_signal(signal.SIGCONT)
    output, _ = driver.communicate(b"go on", timeout=60)
    assert output.split()[-1] == b"RECEIVER_ORPHANED"


def _driver(staged: Stage, patience: float) -> subprocess.Popen[bytes]:
    arguments = [str(staged.feed.folder), staged.database.url(), str(staged.frontier), str(patience)]
    driver = subprocess.Popen(
        [sys.executable, "-c", _DRIVER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(stream_module.__file__).parents[4])},
    )
    return driver


_DRIVER = """
import sys, time
from pathlib import Path
from headrace.core.records import to_record
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.ingest.supervisor import Feed, Receiver
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
address = PostgresAddress.parse(sys.argv[2])
with connect(address, role="test") as connection:
    identity = identify(connection)
upstream = to_record(PostgresUpstream("ours", "pub"))
folder, patience = Path(sys.argv[1]), float(sys.argv[4])
feed = Feed("postgres", address, to_record(identity), upstream, folder, patience=patience)
receiver = Receiver(feed)
receiver.start(PostgresTimeline().position(Lsn.parse(sys.argv[3])))
print(receiver.pid, flush=True)
if sys.stdin.read():
    try:
        while True:
            receiver.poll()
            time.sleep(0.01)
    except Exception as error:
        print(error.code, flush=True)
"""


def _is_zombie(pid: int) -> bool:
    return ") Z " in Path(f"/proc/{pid}/stat").read_text()


def test_a_slot_in_use_is_named_with_its_process(staged: Stage) -> None:
    staged.start()
    _, pid = staged.slot()
    other = Stage(staged.database, staged.feed, staged.frontier)
    other.vary(folder=staged.feed.folder.parent / "second")
    error = other.refusal()
    assert (error.code, error.family) == ("PG_SLOT_ACTIVE", "transient")
    assert f"process {pid}" in error.primary
    assert staged.receiver.poll().streaming
    second = Stage(staged.database, staged.feed, staged.frontier)
    assert second.refusal().code == "SPOOL_BUSY"


def test_a_missing_slot_or_publication_is_refused(staged: Stage) -> None:
    staged.vary(slot="nowhere")
    assert staged.refusal().code == "PG_SLOT_MISSING"
    staged.vary(slot=SLOT, publication="missing")
    error = staged.refusal()
    assert (error.code, error.family) == ("PG_PUBLICATION_MISSING", "misconfigured")
    assert error.detail == '"missing"'
    begin = PostgresTimeline().lsn(staged.frontier)
    with pytest.raises(HeadraceError) as caught:
        SlotStream.open(staged.address, SlotRequest(SLOT, (PUBLICATION, "missing"), begin, begin))
    assert (caught.value.code, caught.value.detail) == (error.code, error.detail)


def test_a_publication_that_appears_too_late_or_goes_is_an_error(staged: Stage) -> None:
    staged.database.execute("INSERT INTO t VALUES (1, 'before')")
    staged.database.execute("CREATE PUBLICATION late FOR TABLE t")
    staged.vary(publication="late")
    assert staged.refusal().code == "PG_PUBLICATION_MISSING"
    staged.vary(publication=PUBLICATION)
    staged.start()
    staged.catch_up()
    staged.database.execute(f"DROP PUBLICATION {PUBLICATION}")
    staged.database.execute("INSERT INTO t VALUES (2, 'after')")
    assert staged.error().code == "PG_PUBLICATION_MISSING"


def test_a_slot_that_moved_past_the_lake_is_refused(staged: Stage) -> None:
    write(staged.database, 1, 5)
    staged.database.execute(
        "SELECT pg_replication_slot_advance(%s, pg_current_wal_flush_lsn())", [SLOT], user="postgres"
    )
    error = staged.refusal()
    assert (error.code, error.family) == ("PG_SLOT_AHEAD", "definite")
    assert str(staged.frontier) in (error.detail or "")


def test_a_server_behind_the_lake_is_refused(staged: Stage) -> None:
    error = staged.refusal(place_at(staged.frontier.time + (1 << 40)))
    assert (error.code, error.family) == ("PG_SERVER_BEHIND", "definite")


def test_a_slot_of_another_kind_is_refused(staged: Stage) -> None:
    staged.database.execute("SELECT pg_create_logical_replication_slot('twice', 'pgoutput', false, true)")
    staged.vary(slot="twice")
    assert staged.refusal().code == "PG_SLOT_UNFIT"
    with staged.database.server.database() as elsewhere:
        elsewhere.execute("SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
        staged.vary(slot="elsewhere")
        assert staged.refusal().code == "PG_SLOT_UNFIT"


def test_another_server_is_refused(staged: Stage) -> None:
    identity = staged.feed.identity
    staged.vary(identity={**identity, "system_id": "7"})
    assert staged.refusal().code == "PG_ANOTHER_SERVER"
    staged.vary(identity={**identity, "timeline": identity["timeline"] + 1})
    assert staged.refusal().code == "PG_PROMOTED"


def test_a_stream_that_commits_would_wait_for_is_refused_with_what_mends_it(staged: Stage) -> None:
    try:
        for names in ("*", 'FIRST 1 (node_b, "*")', '"HEADRACE receiver ours"'):
            _set_standbys(staged, names)
            refused = staged.refusal()
            assert refused.code == "PG_SYNCHRONOUS"
            assert isinstance(refused, Transient)
            assert refused.hint is not None
            for statement in refused.hint.split("; ")[:2]:
                staged.database.execute(statement)
            wait_for(lambda: _standbys(staged) in ("", "node_b", "FIRST 1 (node_b)"), "the setting")
        with connect(staged.address, role="run") as session:
            synchronous.refuse(session)
            _set_standbys(staged, "*")
            with pytest.raises(Transient) as caught:
                synchronous.refuse(session)
            assert caught.value.code == "PG_SYNCHRONOUS"
    finally:
        staged.database.execute("ALTER SYSTEM RESET synchronous_standby_names")
        staged.database.execute("SELECT pg_reload_conf()")
        wait_for(lambda: not _standbys(staged), "no setting")
    staged.start()


def _standbys(staged: Stage) -> str:
    [(names,)] = staged.database.execute("SHOW synchronous_standby_names")
    return str(names)


def _set_standbys(staged: Stage, names: str) -> None:
    staged.database.execute(f"ALTER SYSTEM SET synchronous_standby_names = '{names}'")
    staged.database.execute("SELECT pg_reload_conf()")
    wait_for(lambda: _standbys(staged) == names, "the setting")
