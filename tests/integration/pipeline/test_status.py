"""`status` says what is true now: each word has its own time, ages with the clock, and goes in the end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError, Misconfigured
from headrace.lake.format import status as format_status
from headrace.lake.format.status import SourceStatus
from headrace.pipeline.state import owner
from headrace.sources.postgres.position import Lsn
from headrace.spark import session
from headrace.spark.jobs import DriverRunner
from headrace.status.picture import SourcePicture, pictures
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from tests.background import repeat
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration, leaves_nothing, upstream
from tests.integration.pipeline.serving import serving

START = owner._start  # before a fixture replaces it
TRAFFIC = "INSERT INTO c DEFAULT VALUES"

pytestmark = pytest.mark.server


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database) -> Mirrors:
    """A mirror of three tables, copied."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY); "
        "CREATE TABLE c (id serial PRIMARY KEY)",
        user="app",
    )
    database.execute("INSERT INTO a SELECT i, 0 FROM generate_series(1, 50) i", user="app")
    mirrors.once()
    return mirrors


def _status(mirrors: Mirrors) -> SourcePicture:
    [source] = pictures(str(mirrors.path))
    return source


def _shown(mirrors: Mirrors, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """Run `headrace status`: its exit code, and what it prints."""
    capsys.readouterr()
    code = cli.main(["status", "--lake", str(mirrors.path), *argv])
    heard = capsys.readouterr()
    return code, heard.out + heard.err


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """The fail point at which the run stands from here on, until it is released with ""."""
    release = tmp_path / "release"
    monkeypatch.setenv("HEADRACE_FAILPOINT_RELEASE", str(release))

    def stand(where: str) -> None:
        if where:
            monkeypatch.setenv("HEADRACE_FAILPOINT", f"{where}=pause")
        else:
            release.touch()

    yield stand
    release.touch()


def test_a_loop_that_stands_is_seen_to_stand_and_to_fall_behind(
    mirrors: Mirrors, pause: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(mirrors) as served:
        pause("lake.plan.before")
        for turn in range(3):
            mirrors.database.execute(f"UPDATE a SET n = {turn}", user="app")
        [(end,)] = mirrors.database.execute("SELECT pg_current_wal_insert_lsn()::text")
        served.until(lambda: (_status(mirrors).lag_seconds or 0) > 4, "the lag")
        source = _status(mirrors)
        assert source.age is not None
        assert source.age < 3  # the record is fresh, as ever
        assert source.turn_age is not None
        assert source.turn_age > 3
        assert source.contact_age is not None
        assert source.contact_age < 4  # the source is heard by the receiver
        assert source.position is not None
        assert source.position.lag_bytes > 0
        assert Lsn.parse(source.position.received_until) >= Lsn.parse(end)
        assert source.status.work is not None
        assert source.status.work.what.startswith("commits epoch ")
        assert "busy for " in _shown(mirrors, capsys)[1]
        code, shown = _shown(mirrors, capsys, "--max-lag", "2s")
        assert code == 4
        assert "STATUS_BEHIND" in shown
        assert _shown(mirrors, capsys, "--check", "--max-lag", "10m")[0] == 0
        pause("")
        served.until(lambda: _status(mirrors).lag_seconds == 0, "the mark")
        served.until(lambda: (_status(mirrors).turn_age or 9) < 2, "its turns")
        assert _shown(mirrors, capsys, "--check")[0] == 0
    code, shown = _shown(mirrors, capsys, "--check")
    assert (code, "STATUS_NOT_RUNNING" in shown) == (4, True)


def test_the_lag_of_a_server_that_is_not_heard_grows_with_the_clock(
    mirrors: Mirrors,
    program: Program,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(format_status, "CONTACT_SECONDS", 6.0)
    server = mirrors.database.server
    with Proxy(server.host, server.port) as proxy:
        url = mirrors.database.url(user="app", host="127.0.0.1", port=proxy.port)
        with closing(Mirrored(mirrors.path, url, "public.*", program=program)) as mirror:
            mirror.start()
            mirror.until(lambda: mirror.status().status.state == "running", "the beginning")
            assert mirror.status().lag_seconds == 0
            proxy.refuse()
            proxy.cut()
            mirror.until(lambda: mirror.status().status.state == "waiting", "the loss")
            mirror.until(lambda: (mirror.status().lag_seconds or 0) > 6, "the lag")
            assert mirror.status().status.error is not None
            shown = _shown(mirrors, capsys)[1]
            assert "the source last answered " in shown
            assert "up to " in shown
            proxy.admit()
            mirror.until(lambda: mirror.status().status.state == "running", "the server again")
            mirror.until(lambda: mirror.status().lag_seconds == 0, "its word")
            mirror.kill()
            dead = mirror.status()
            assert (dead.runs, dead.state) == (False, "silent (was running)")
            code, shown = _shown(mirrors, capsys, "--check")
            assert (code, "STATUS_NOT_RUNNING" in shown) == (4, True)
            assert "main: not running (last seen " in shown
            assert "behind when last seen" in shown
            wait_for(lambda: (mirror.status().lag_seconds or 0) > 6, "the lag of a run that was killed")
            assert dead.status.position == mirror.status().status.position
            record = mirror.status().to_json()
            assert record["position"]["lag_seconds"] > 6
            assert record["contact_age_seconds"] > 6


def test_a_dropped_mirror_says_so_and_so_does_the_next_run(
    mirrors: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    url = mirrors.database.url(user="app")
    source = _status(mirrors)
    assert source.status.upstream is not None
    assert cli.main(["drop", url, "--yes", "--lake", str(mirrors.path)]) == 0
    assert upstream(mirrors.database) == (set(), set())
    source = _status(mirrors)
    assert source.state == "dropped"
    assert (source.status.upstream, source.warnings, source.status.error) == (None, {}, None)
    with pytest.raises(HeadraceError) as caught:
        mirrors.once()
    assert caught.value.code == "SOURCE_DROPPED"
    assert "--reconcile" in caught.value.hint
    assert upstream(mirrors.database) == (set(), set())
    mirrors.database.execute("INSERT INTO a VALUES (51, 1)", user="app")
    _reconcile(mirrors)
    assert mirrors.lake.at().arrow("public.a").num_rows == 51
    source = _status(mirrors)
    assert (source.state, dict(source.warnings)) == ("stopped", {})
    mirrors.once()


def _reconcile(mirrors: Mirrors) -> None:
    config = configuration(mirrors.path, url=mirrors.database.url(user="app"))
    headrace.mirror(config, spark=mirrors.spark, once=True, reconcile=True)


def test_a_warning_goes_when_its_cause_is_over(mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch) -> None:
    """The slot is lost while the mirror runs; the warning of the reconcile stays no longer than that."""
    monkeypatch.setattr("headrace.pipeline.loop.WATCH_SECONDS", 0.5)
    mirrors.options |= {"reconcile": "auto", "max_wal": 1}
    with serving(mirrors) as served:
        served.until(lambda: "PG_MAX_WAL" in _status(mirrors).warnings, "the warning")
        since = _status(mirrors).status.warned_since["PG_MAX_WAL"]
        served.until(lambda: _status(mirrors).status.upstream is not None, "the source's word")
        assert _status(mirrors).status.warned_since["PG_MAX_WAL"] == since
        assert _status(mirrors).status.upstream is not None
    mirrors.options["max_wal"] = 10**12
    with serving(mirrors) as served:
        served.until(lambda: _status(mirrors).status.upstream is not None, "the source's word")
        _lose_the_slot(mirrors)
        served.until(lambda: "PG_SLOT_MISSING" in _status(mirrors).warnings, "the loss")
        served.until(lambda: _status(mirrors).status.warnings == {}, "the end of it")
        assert _status(mirrors).status.state == "running"


def test_a_lock_that_kept_a_table_in_our_publication_is_warned_of_while_it_lasts(mirrors: Mirrors) -> None:
    mirrors.database.execute("ALTER TABLE a ADD COLUMN more float DEFAULT random()", user="app")
    mirrors.options["on_ddl"] = "stop"
    traffic = repeat(lambda: mirrors.database.execute(TRAFFIC, user="app"), every=0.3)
    with mirrors.database.connect(user="app") as holder, ExitStack() as stack:
        holder.execute("BEGIN; LOCK TABLE a IN SHARE UPDATE EXCLUSIVE MODE")
        served = stack.enter_context(serving(mirrors))
        stack.enter_context(traffic)
        mirrors.database.execute("UPDATE a SET n = 1", user="app")
        served.until(lambda: "WITHDRAWAL_WAITS" in _status(mirrors).warnings, "the warning")
        holder.execute("COMMIT")
        served.until(lambda: _status(mirrors).status.warnings == {}, "its end")
    assert _status(mirrors).tables["public.a"].state == "stopped"


def _lose_the_slot(mirrors: Mirrors) -> None:
    """Somebody ends the receiver's session and drops its slot."""

    def dropped() -> bool:
        mirrors.database.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active_pid IS NOT NULL "
            "AND database = current_database()"
        )
        try:
            mirrors.database.execute(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                "WHERE database = current_database()"
            )
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_for(dropped, "the slot's end")


TREE = """
CREATE TABLE tree (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE tree_1 PARTITION OF tree FOR VALUES FROM (0) TO (9);
INSERT INTO tree SELECT generate_series(0, 8)
"""
CHANGES = {
    "a": "ALTER TABLE a ALTER COLUMN n TYPE text USING n::text || '!'",
    "b": "ALTER TABLE b DROP CONSTRAINT b_pkey; ALTER TABLE b REPLICA IDENTITY FULL",
    "tree": "TRUNCATE tree_1",
    "d": "ALTER TABLE d DROP CONSTRAINT d_pkey",
}
ANEW = "it is copied anew and comes back by itself; there is nothing to do"


def test_a_change_that_is_followed_is_told_in_one_line_and_so_is_the_return(
    mirrors: Mirrors, program: Program, capsys: pytest.CaptureFixture[str]
) -> None:
    """Retyped columns, another key, an emptied partition; a key that is dropped has one line more."""
    mirrors.database.execute(f"{TREE}; CREATE TABLE d (id int PRIMARY KEY)", user="app")
    url = mirrors.database.url(user="app")
    shown = list[str]()
    with closing(Mirrored(mirrors.path, url, "public.*", "!public.tree_*", program=program)) as mirror:
        mirror.start()
        # The lake has two of them by now, and the run adds the others.
        assert cli.main(["tables", "add", "d", "tree", "--lake", str(mirrors.path), "--url", url]) == 0
        mirror.until_live()
        mirrors.database.execute("; ".join(CHANGES.values()), user="app")

        def back(*names: str) -> bool:
            shown.extend(_shown(mirrors, capsys)[1].splitlines())
            return all(f"main: public.{name} is back in the marks" in mirror.log() for name in names)

        with repeat(lambda: mirrors.database.execute(TRAFFIC, user="app"), every=0.3):
            mirror.until(lambda: back("a", "b", "tree"), "the tables")
            mirror.until(lambda: "public.d is in no mark: PG_IDENTITY_MISSING" in mirror.log(), "the refusal")
            mirrors.database.execute("ALTER TABLE d ADD PRIMARY KEY (id)", user="app")
            mirror.until(lambda: back("d"), "the one without a key")
        mirror.until(lambda: back() and mirror.status().tables["public.d"].state == "live", "the end")
        log = [line.partition("Z ")[2] for line in mirror.log().splitlines()]
    for name in CHANGES:
        lines = [line for line in log if f"public.{name} " in line and " in no mark" not in line]
        assert (len(lines), lines[-1].startswith(f"main: public.{name} is back in the marks")) == (2, True), (
            "\n".join(log)
        )
        assert ANEW in lines[0]
        last = [line for line in shown if f"public.{name} is not what was copied" in line][-1]
        assert "it was copied anew and is back in the marks (mark " in last
    assert [line for line in [*log, *shown] if "stopped" in line and "it stopped: TABLE" not in line] == []


def test_a_table_that_waits_for_its_next_try_says_when_that_is(
    mirrors: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    traffic = repeat(lambda: mirrors.database.execute(TRAFFIC, user="app"), every=0.3)
    with serving(mirrors) as served, traffic:
        mirrors.database.execute("ALTER TABLE a DROP CONSTRAINT a_pkey; DROP TABLE b", user="app")
        served.until(lambda: _status(mirrors).tables["public.a"].retry_at is not None, "a try in vain")
        served.until(lambda: _status(mirrors).tables["public.b"].is_missing, "a look at the other")
        table = _status(mirrors).tables["public.a"]
        assert table.follows
        assert table.error is not None
        assert str(table.error["hint"]).startswith("it is tried again by itself; ")
        code, shown = _shown(mirrors, capsys, "--check")
        assert "public.a is in no mark: PG_IDENTITY_MISSING: " in shown
        assert "; next try " in shown
        assert "not at the source any more: public.b; " in shown
        assert (code, "TABLE_STOPPED" in shown) == (0, False)  # both come back by themselves
        mirrors.database.execute("ALTER TABLE a ADD PRIMARY KEY (id)", user="app")
        mirrors.database.execute("CREATE TABLE b (id int PRIMARY KEY)", user="app")
        with repeat(lambda: mirrors.database.execute(TRAFFIC, user="app"), every=0.3):
            served.until(
                lambda: {t.state for t in _status(mirrors).tables.values()} == {"live"}, "the tables"
            )
        assert not _status(mirrors).tables["public.b"].is_missing
        assert _status(mirrors).tables["public.a"].retry_at is None


@pytest.fixture
def slow_start(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """A Spark that is not there before this is set."""
    may = threading.Event()

    def start(*_: object) -> object:
        assert may.wait(300)
        return DriverRunner(), lambda: None

    monkeypatch.setattr(owner, "_start", start)
    yield may
    may.set()


def test_a_run_that_is_refused_or_stopped_ends_though_spark_is_starting(
    mirrors: Mirrors, slow_start: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = time.monotonic()
    asked = configuration(mirrors.path, "public.none", url=mirrors.database.url(user="app"))
    with pytest.raises(HeadraceError) as caught:
        headrace.mirror(asked)
    assert caught.value.code == "TABLE_NOT_ADDED"
    # A copy waits for Spark, and says so; whoever stops the run does not.
    resync = ["tables", "resync", "a", "--lake", str(mirrors.path), "--url", mirrors.database.url(user="app")]
    assert cli.main(resync) == 0
    with serving(mirrors) as served:
        served.until(lambda: _status(mirrors).status.spark is not None, "word of Spark")
        spark = _status(mirrors).status.spark
        assert spark is not None
        assert spark.what == "Spark is starting"
    # A proof asks for the password it lacks at once.
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.setenv("PGPASSFILE", str(mirrors.path / "none"))
    assert cli.main(["verify", "--lake", str(mirrors.path)]) == 2
    assert time.monotonic() - begun < 30
    assert not slow_start.is_set()


def test_a_run_without_work_for_spark_ends_too_if_its_master_is_not_there(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_active", lambda: None)  # of another test
    monkeypatch.setattr(owner, "_start", START)
    stop, heard = threading.Event(), set[str]()

    def hear(said: SourceStatus) -> None:
        heard.add("" if said.spark is None else said.spark.what)

    late = threading.Timer(60, stop.set)  # a run that says nothing goes on
    late.start()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        config = configuration(mirrors.path, url=mirrors.database.url(user="app"))
        with pytest.raises(HeadraceError) as caught:
            headrace.mirror({**config, "spark": {"master": master}}, stop=stop, listener=hear)
    late.cancel()
    assert caught.value.code == "SPARK_MASTER_SILENT"
    assert heard <= {"", f"Spark is starting at {master}"}


def test_a_first_run_whose_spark_does_not_come_leaves_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.execute("CREATE TABLE t (id int PRIMARY KEY)", user="app")
    config = configuration(tmp_path / "lake", url=database.url(user="app"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        # Another test's Spark may still run in this process, and would be borrowed.
        monkeypatch.setattr(session, "_active", lambda: None)
        with pytest.raises(HeadraceError) as caught:
            headrace.mirror({**config, "spark": {"master": master}}, once=True)
    assert caught.value.code == "SPARK_MASTER_SILENT"
    assert leaves_nothing(tmp_path / "lake")
    # A master that is there, and a Spark that ends amid its start.
    failed = Misconfigured("SPARK_START_FAILED", "Spark does not start", hint="check [spark] master")

    def start(*_: object) -> None:
        raise failed

    monkeypatch.setattr(owner, "_start", start)
    with pytest.raises(HeadraceError) as caught:
        headrace.mirror(config, once=True)
    assert caught.value.code == "SPARK_START_FAILED"
    assert leaves_nothing(tmp_path / "lake")
    assert upstream(database) == (set(), set())
