"""What `status` says is true now: it has its own time, grows with the clock, and goes when it is over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.lake.format import status as format_status
from headrace.sources.postgres.lsn import Lsn
from headrace.status.picture import Source, pictures
from headrace.testing.mirror_process import Mirrored, Program
from headrace.testing.postgres import Database
from headrace.testing.postmaster import wait_for
from headrace.testing.proxy import Proxy
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration, upstream
from tests.integration.pipeline.serving import serving

pytestmark = pytest.mark.server


@pytest.fixture
def mirrors(mirrors: Mirrors, database: Database) -> Mirrors:
    """Of two tables, copied."""
    database.execute(
        "CREATE TABLE a (id int PRIMARY KEY, n int); CREATE TABLE b (id int PRIMARY KEY)", user="app"
    )
    database.execute("INSERT INTO a SELECT i, 0 FROM generate_series(1, 50) i", user="app")
    mirrors.once()
    return mirrors


def _status(mirrors: Mirrors) -> Source:
    [source] = pictures(str(mirrors.path))
    return source


def _shown(mirrors: Mirrors, capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str]:
    """What `headrace status` prints, and its exit code."""
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
        assert Lsn.parse(source.position.received) >= Lsn.parse(end)
        assert source.said.work is not None
        assert source.said.work.what.startswith("commits epoch ")
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
            mirror.until(lambda: mirror.status().said.state == "running", "the beginning")
            assert mirror.status().lag_seconds == 0
            proxy.refuse()
            proxy.cut()
            mirror.until(lambda: mirror.status().said.state == "waiting", "the loss")
            mirror.until(lambda: (mirror.status().lag_seconds or 0) > 6, "the lag")
            assert mirror.status().said.error is not None
            shown = _shown(mirrors, capsys)[1]
            assert "the source last answered " in shown
            assert "up to " in shown
            proxy.admit()
            mirror.until(lambda: mirror.status().said.state == "running", "the server again")
            mirror.until(lambda: mirror.status().lag_seconds == 0, "its word")
            mirror.kill()
            dead = mirror.status()
            wait_for(lambda: (mirror.status().lag_seconds or 0) > 6, "the lag of a run that was killed")
            assert dead.said.position == mirror.status().said.position
            record = mirror.status().as_record()
            assert record["position"]["lag_seconds"] > 6
            assert record["contact_age_seconds"] > 6


def test_a_dropped_mirror_says_so_and_so_does_the_next_run(
    mirrors: Mirrors, capsys: pytest.CaptureFixture[str]
) -> None:
    url = mirrors.database.url(user="app")
    source = _status(mirrors)
    assert source.said.upstream is not None
    assert cli.main(["drop", url, "--lake", str(mirrors.path)]) == 0
    assert upstream(mirrors.database) == (set(), set())
    source = _status(mirrors)
    assert source.state == "dropped"
    assert (source.said.upstream, source.warnings, source.said.error) == (None, {}, None)
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
        since = _status(mirrors).said.warned_since["PG_MAX_WAL"]
        served.until(lambda: _status(mirrors).said.upstream is not None, "the source's word")
        assert _status(mirrors).said.warned_since["PG_MAX_WAL"] == since
        assert _status(mirrors).said.upstream is not None
    mirrors.options["max_wal"] = 10**12
    with serving(mirrors) as served:
        served.until(lambda: _status(mirrors).said.upstream is not None, "the source's word")
        _lose_the_slot(mirrors)
        served.until(lambda: "PG_SLOT_MISSING" in _status(mirrors).warnings, "the loss")
        served.until(lambda: _status(mirrors).said.warnings == {}, "the end of it")
        assert _status(mirrors).said.state == "running"


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
