"""Others interfere while we live: with our tables, receiver, spool and ownership, and at the server."""

from __future__ import annotations

import os
import re
import resource
import signal
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import headrace
from headrace.core.errors import Definite
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.ingest.supervisor import Feed, Receiver
from headrace.lake.format import statusfile
from headrace.lake.format.status import SourceStatus
from headrace.pipeline import completion, loop, receiving, run
from headrace.pipeline.commands import ask
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.records import source_of
from headrace.pipeline.stream import cadence
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.spool.reader import SpoolReader
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration
from tests.integration.pipeline.serving import Served, serving
from tests.lakes import has_vectors

pytestmark = pytest.mark.server


@pytest.fixture
def mirrored(mirrors: Mirrors) -> Mirrors:
    """Two tables at rest, `t` of ten rows and `other` of one."""
    mirrors.database.execute("CREATE TABLE t (id int PRIMARY KEY, n int)", user="app")
    mirrors.database.execute("CREATE TABLE other (id int PRIMARY KEY)", user="app")
    mirrors.database.execute("INSERT INTO t SELECT i, i FROM generate_series(1, 10) i", user="app")
    mirrors.database.execute("INSERT INTO other VALUES (1)", user="app")
    mirrors.once()
    return mirrors


def _exact(mirrors: Mirrors) -> bool:
    return validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []


# --- a foreign commit in one of our tables ------------------------------------------------------


def _append(mirrors: Mirrors) -> None:
    """Another program adds a row to the lake's `t`."""
    row = pa.table({"id": pa.array([99], pa.int32()), "n": pa.array([99], pa.int32())})
    write_deltalake(str(mirrors.path / "tables/main/public/t"), row, mode="append")


def _rewrite(mirrors: Mirrors) -> None:
    """Another program puts the same rows into other files."""
    table = DeltaTable(str(mirrors.path / "tables/main/public/t"))
    before = table.version()
    table.optimize.z_order(["id"])
    assert table.version() == before + 1


def _stopped_alone(mirrors: Mirrors, others: int) -> bool:
    """Tell whether `t` stopped for the foreign commit, and the newest mark has `other` with its rows."""
    error = mirrors.record("public.t").error
    cut = mirrors.lake.at()
    return (
        error is not None
        and error.code == "LAKE_FOREIGN_COMMIT"
        and set(cut.marks["main"].versions) == {"public.other"}
        and cut.arrow("public.other").num_rows == others
    )


def test_a_table_with_a_damaged_file_stops_alone(mirrored: Mirrors) -> None:
    [file] = (mirrored.path / "tables/main/public/t").glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[4:40] = bytes(36)  # of the first column's pages
    file.write_bytes(data)
    mirrored.database.execute("UPDATE t SET n = 0 WHERE id = 1; INSERT INTO other VALUES (2)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrored.once()
    assert stopped.value.code == "LAKE_FILE_UNREADABLE"
    cut = mirrored.lake.at()
    assert set(cut.marks["main"].versions) == {"public.other"}
    assert cut.arrow("public.other").num_rows == 2


def test_a_table_with_a_damaged_vector_stops_alone_and_is_added_again(mirrored: Mirrors) -> None:
    mirrored.options["merge"] = "vectors"
    mirrored.database.execute("UPDATE t SET n = 0 WHERE id < 3", user="app")
    assert has_vectors(mirrored.once())
    [line] = [
        path
        for path in (mirrored.path / "tables/main/public/t/_delta_log").glob("*.json")
        if '"pathOrInlineDv"' in path.read_text()
    ]
    line.write_text(re.sub('("pathOrInlineDv": ?")[^"]*', r"\g<1>0000000000", line.read_text()))
    mirrored.database.execute("UPDATE t SET n = 1 WHERE id = 1; INSERT INTO other VALUES (2)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrored.once()
    assert stopped.value.code == "LAKE_VECTOR_DAMAGED"
    assert mirrored.lake.at().tables() == ["public.other"]
    for kind in ("tables.drop", "tables.add"):  # as the hint says
        ask.ask(str(mirrored.path), kind, {"tables": ["public.t"]}, url=mirrored.database.url(user="app"))
    mirrored.once()
    assert _exact(mirrored)


def test_a_table_that_another_program_changed_stops_alone(mirrored: Mirrors) -> None:
    last = mirrored.lake.marks()[-1]
    _append(mirrored)
    mirrored.database.execute("INSERT INTO other VALUES (2); INSERT INTO t VALUES (11, 11)", user="app")
    with pytest.raises(Definite) as stopped:
        mirrored.once()
    assert stopped.value.code == "LAKE_FOREIGN_COMMIT"
    assert _stopped_alone(mirrored, others=2)
    assert mirrored.lake.at(epoch=last.epoch).arrow("public.t").num_rows == 10


def test_a_table_that_another_program_changes_while_we_run_stops_alone(mirrored: Mirrors) -> None:
    with serving(mirrored) as served:
        _append(mirrored)
        mirrored.database.execute("INSERT INTO other VALUES (2); INSERT INTO t VALUES (11, 11)", user="app")
        served.until(lambda: _stopped_alone(mirrored, others=2), "the stop of one table")
        mirrored.database.execute("INSERT INTO other VALUES (3)", user="app")
        served.until(lambda: _stopped_alone(mirrored, others=3), "what the other table got later")
    assert "LAKE_TABLE_MOVED" in served.codes


def test_rows_that_another_program_put_into_other_files_are_the_same_rows(mirrored: Mirrors) -> None:
    """Rows that a deletion vector had deleted do not come back."""
    mirrored.options["merge"] = "vectors"
    mirrored.database.execute("UPDATE t SET n = 0 WHERE id < 3; DELETE FROM t WHERE id = 7", user="app")
    assert has_vectors(mirrored.once())
    _rewrite(mirrored)
    mirrored.database.execute("UPDATE t SET n = n + 1 WHERE id > 5; DELETE FROM t WHERE id = 3", user="app")
    mirrored.once()
    assert _exact(mirrored)


def test_rows_that_another_program_rewrites_while_we_run_are_absorbed(mirrored: Mirrors) -> None:
    with serving(mirrored) as served:
        _rewrite(mirrored)
        mirrored.database.execute("DELETE FROM t WHERE id = 3", user="app")
        served.until(lambda: served.holds("public.t", 9), "the change of a rewritten table")
    assert _exact(mirrored)


# --- the receiver and its spool -----------------------------------------------------------------


def test_a_receiver_that_is_killed_is_replaced(mirrored: Mirrors) -> None:
    with serving(mirrored) as served:
        served.receiver.kill()
        served.until(lambda: "RECEIVER_KILLED" in served.codes, "word of it")
        mirrored.database.execute("INSERT INTO t VALUES (11, 11)", user="app")
        served.until(lambda: served.holds("public.t", 11), "the row that came after")
    assert _exact(mirrored)


def test_a_run_that_does_not_move_begins_anew(mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--once`: its receiver is frozen. The error says what it waited for."""
    monkeypatch.setattr(completion, "STALLED_SECONDS", 2.0)
    monkeypatch.setattr(receiving, "STREAMING_WITHIN", 0.1)
    mirrored.database.execute("INSERT INTO t VALUES (11, 11)", user="app")
    start = Receiver.start
    started: list[Receiver] = []
    errors: dict[str, str] = {}

    def start_frozen(receiver: Receiver, frontier: Position) -> None:
        start(receiver, frontier)
        started.append(receiver)
        if len(started) == 1:
            assert receiver.pid is not None
            os.kill(receiver.pid, signal.SIGSTOP)

    def listen(status: SourceStatus) -> None:
        if status.error is not None:
            errors[status.error["code"]] = status.error["detail"]

    monkeypatch.setattr(Receiver, "start", start_frozen)
    url = mirrored.database.url(user="app")
    run.mirror(configuration(mirrored.path, url=url), once=True, listener=listen)
    assert "the receiver has" in errors["RUN_STALLED"]
    assert _exact(mirrored)


def test_a_spool_that_can_grow_no_more_loses_nothing(mirrored: Mirrors) -> None:
    """A limit on the size of files stands for a full disk, which an ordinary user can't make."""
    with serving(mirrored) as served:
        limited = served.receiver
        resource.prlimit(limited.pid, resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        mirrored.database.execute("INSERT INTO t SELECT i, i FROM generate_series(11, 10000) i", user="app")
        served.until(lambda: "SPOOL_UNWRITABLE" in served.codes, "word of it")
        served.until(lambda: served.holds("public.t", 10_000), "the rows that did not fit")
        assert served.receiver.pid != limited.pid
    assert _exact(mirrored)


def _fill(mirrors: Mirrors) -> Path:
    """Let a receiver bring what the lake does not hold yet; the spool's folder."""
    source = source_of(mirrors.lake.catalog())
    assert source is not None
    address = PostgresAddress.parse(mirrors.database.url(user="app"))
    with connect(address, role="test") as connection:
        identity = identify(connection)
    folder = mirrors.path / "_headrace/spool/main"
    receiver = Receiver(Feed(source.kind, address, to_record(identity), source.upstream, folder))
    receiver.start(PostgresTimeline().position(Lsn.parse(mirrors.lake.marks()[-1].frontier)))

    def there() -> bool:
        receiver.poll()
        return len(SpoolReader(folder).transactions(0)) > 0

    wait_for(there, "a transaction in the spool")
    receiver.stop()
    return folder


@pytest.mark.parametrize("part", ["raw", "sums", "index", "layouts"])
def test_a_damaged_spool_is_noticed_and_streamed_again(mirrored: Mirrors, part: str) -> None:
    mirrored.database.execute("UPDATE t SET n = n + 1", user="app")
    folder = _fill(mirrored)
    damaged = max(folder.glob(f"*.{part}"))
    contents = bytearray(damaged.read_bytes())
    contents[len(contents) // 2] ^= 0x10
    damaged.write_bytes(contents)
    served = Served(mirrored)
    config = configuration(mirrored.path, url=mirrored.database.url(user="app"))
    headrace.mirror(config, spark=mirrored.spark, once=True, listener=served.hear)
    assert "SPOOL_DAMAGED" in served.codes
    assert _exact(mirrored)


# --- the server and its tables ------------------------------------------------------------------


def test_a_table_that_lost_its_key_leaves_our_publication_before_a_mark_is_due(
    mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the application's own UPDATE and DELETE fail, and nothing in the stream tells of it."""
    monkeypatch.setattr(cadence, "IDLE_SECONDS", 3600.0)
    database = mirrored.database
    with serving(mirrored) as served:
        database.execute("ALTER TABLE t DROP CONSTRAINT t_pkey", user="app")
        published = "SELECT tablename FROM pg_publication_tables"
        served.until(lambda: database.execute(published) == [("other",)], "its way out")
        database.execute("UPDATE t SET n = 0; DELETE FROM t", user="app")
        served.until(lambda: set(mirrored.lake.at().mark.versions) == {"public.other"}, "its stop")


def test_a_run_lets_go_when_commits_begin_to_wait_for_it_and_comes_back(
    mirrored: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "WATCH_SECONDS", 0.2)
    server = mirrored.database.server
    with serving(mirrored) as served:
        served.until(lambda: server.execute(_STREAMS) != [], "the stream")
        server.set(synchronous_standby_names="*")
        try:
            served.until(lambda: "PG_SYNCHRONOUS" in served.codes, "word of it")
            assert server.execute(_STREAMS) == []
        finally:
            server.set(synchronous_standby_names=None)
        mirrored.database.execute("INSERT INTO t VALUES (11, 11)", user="app")
        served.until(lambda: served.holds("public.t", 11), "the row that came after")


_STREAMS = "SELECT application_name FROM pg_stat_replication"


# --- two owners ---------------------------------------------------------------------------------


def test_a_run_that_met_an_error_takes_nothing_back_from_a_successor(mirrored: Mirrors) -> None:
    """It was frozen, say, for so long that another took its place, and its own receiver went."""
    with serving(mirrored, ends_with="LAKE_FENCED") as served:
        successor = Ledger(mirrored.lake.store, "main")
        served.receiver.kill()
        wait_for(lambda: bool(served.ended), "its end")
    assert "RECEIVER_KILLED" in served.codes
    assert mirrored.lake.marks()[-1] == successor.mark


@pytest.mark.parametrize(
    ("error", "state"), [(RuntimeError("a bug"), "failed"), (KeyboardInterrupt(), "stopped")]
)
def test_a_run_that_ends_by_an_error_without_a_code_says_so_and_owns_nothing(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch, error: BaseException, state: str
) -> None:
    """In a notebook its process lives on: whoever repeats the last word would keep the source for ever."""

    def broken(_: loop.Run) -> None:
        raise error

    mirrors.database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    with monkeypatch.context() as patched:
        patched.setattr(run, "_turn", broken)
        with pytest.raises(type(error)):
            mirrors.once()
    status = statusfile.read(mirrors.lake.store, "main")
    assert status is not None
    assert status.record.state == state
    wait_for(lambda: "headrace-reporter" not in [each.name for each in threading.enumerate()], "silence")
    mirrors.once()


def test_a_second_run_is_refused_and_leaves_no_trace(
    database: Database, tmp_path: Path, program: Program
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    lake, url = tmp_path / "lake", database.url(user="app")
    with Mirrored(lake, url, "public.*", program=program) as first:
        first.until_live()
        first.until(lambda: first.status().state == "running", "run")
        second = Mirrored(lake, url, "public.*", program=program)
        try:
            assert second.once() == 2
            # The next run would take the source over if the status said that its owner had failed.
            status = statusfile.read(first.lake.store, "main")
            assert status is not None
            assert (status.record.state, status.record.owner["pid"]) == ("running", first.pid)
            assert second.once() == 2
            assert "SOURCE_OWNED" in second.log()
            assert str(first.pid) in second.log()
        finally:
            second.close()
        database.execute("INSERT INTO t VALUES (1)", user="app")
        first.until(lambda: first.lake.at().arrow("public.t").num_rows == 1, "the row")
        assert first.stop() == 0
