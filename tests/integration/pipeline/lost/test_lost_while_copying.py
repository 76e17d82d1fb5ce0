"""A place in the stream that was lost while tables were being copied: late ones, and others anew.

Their unfinished copies belong to a stream that is no more. After recovery these tables are as exact as all
others, from the same mark on, and nothing of the unfinished work is left in the lake.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.core.errors import HeadraceError
from headrace.pipeline import recovery
from headrace.pipeline.commands import ask
from headrace.pipeline.first_run import Attempt
from headrace.pipeline.state.table_state import State
from headrace_testing.copies import Backup
from headrace_testing.mirror_process import Mirrored
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.lost.losing import Source, drop_slots
from tests.integration.pipeline.serving import serving

pytestmark = pytest.mark.server

LATE = frozenset({"public.late", "public.late_full"})
LATE_TABLES = """
CREATE TABLE late (id int PRIMARY KEY, s text);
CREATE TABLE late_full (id int PRIMARY KEY, s text);
ALTER TABLE late_full REPLICA IDENTITY FULL;
INSERT INTO late SELECT i, 'row ' || i FROM generate_series(1, 20) i;
INSERT INTO late_full SELECT * FROM late;
"""
LATE_CHANGE = "UPDATE {0} SET s = '{1}' WHERE id % 5 = 0; DELETE FROM {0} WHERE id = 7"
HALF = "INSERT INTO {0} VALUES (100, 'half')"


@pytest.fixture
def source(source: Source) -> Source:
    """With tables that come late."""
    source.database.execute(LATE_TABLES, user="app")
    return source


def _of_late(source: Source, statement: str, *more: str) -> None:
    for table in ("late", "late_full"):
        source.database.execute(statement.format(table, *more), user="app")


def _ask(source: Source, kind: str, *tables: str) -> None:
    ask.ask(str(source.path), kind, {"tables": list(tables)}, url=source.database.url(user="app"))


@contextmanager
def _barred(source: Source) -> Iterator[None]:
    """A transaction has written the late tables, and their copy has to wait for its end."""
    with source.database.connect(user="app") as half:
        half.execute("BEGIN")
        for table in ("late", "late_full"):
            half.execute(HALF.format(table).encode())
        yield
        half.execute("COMMIT")


def _chosen(source: Source) -> None:
    """The late tables are PENDING, and the lake keeps what the stream has had for them."""
    mirrors = Mirrors(source.database, source.path, source.spark, source.options)
    with _barred(source), serving(mirrors) as served:
        _ask(source, "tables.add", "late", "late_full")
        _of_late(source, LATE_CHANGE, "kept")
        served.until(lambda: bool(source.kept), "changes that are kept")
    assert _stand(source) == {State.PENDING}


def _stand(source: Source) -> set[State]:
    """Return the states of the late tables, in each of which the lake keeps stream for them."""
    records = [source.record(table) for table in ("late", "late_full")]
    assert all(record.state.keeps_stream for record in records)
    assert source.kept
    return {record.state for record in records}


def _lose(source: Source) -> None:
    drop_slots(source.database)
    source.change()
    _of_late(source, "DELETE FROM {0} WHERE id = 8")


def test_while_late_tables_wait_for_their_copy(source: Source) -> None:
    _chosen(source)
    _lose(source)
    source.heal("PG_SLOT_MISSING", joining=LATE)


@pytest.mark.spark
@pytest.mark.full
def test_while_late_tables_take_what_was_kept_for_them(source: Source) -> None:
    """Their copy is in the lake, and is of a stream that is no more."""
    mirror = Mirrored(source.path, source.database.url(user="app"), "public.*")
    try:
        mirror.start(environment={"HEADRACE_FAILPOINT": "late.replay.before=kill"})
        mirror.until(lambda: mirror.status().status.owner.get("pid") == mirror.pid, "a run of its own")
        with _barred(source):
            _ask(source, "tables.add", "late", "late_full")
            _of_late(source, LATE_CHANGE, "kept")
            mirror.until(lambda: bool(source.kept), "changes that are kept")
        assert mirror.wait() == -9, mirror.log()
    finally:
        mirror.close()
    assert State.CATCHING_UP in _stand(source)
    _lose(source)
    source.heal("PG_SLOT_MISSING", joining=LATE)


@pytest.mark.full
def test_while_late_tables_wait_and_the_server_is_set_back(source: Source) -> None:
    """To where its publication did not hold them yet, at positions that have been."""
    backup = Backup.of(source.database.server)
    for _ in range(3):
        source.change()
        source.database.execute("SELECT pg_switch_wal()")
    _chosen(source)
    backup.restore()
    source.change()
    source.heal("PG_SERVER_BEHIND", joining=LATE)


def test_while_tables_are_copied_anew(source: Source) -> None:
    """Also one that had stopped: what was asked for is still done. One that is gone stops."""
    source.database.execute("CREATE TABLE gone (id int PRIMARY KEY)", user="app")
    _ask(source, "tables.add", "gone")
    source.database.execute("ALTER TABLE plain REPLICA IDENTITY FULL", user="app")
    with pytest.raises(HeadraceError) as caught:
        source.once(on_ddl="stop")
    assert caught.value.code == "TABLE_CHANGED"
    _ask(source, "resync", "plain", "whole", "gone")
    source.database.execute("DROP TABLE gone", user="app")
    drop_slots(source.database)
    source.change()
    last = source.lake.marks()[-1]
    assert set(last.versions) == {"public.whole", "public.gone"}
    with pytest.raises(HeadraceError) as gone:
        source.once(reconcile=True)
    assert gone.value.code == "RESYNC_TABLE_GONE"
    assert last.frontier in (gone.value.detail or "")
    healed = source.lake.marks()[-1]
    assert set(healed.versions) == {"public.plain", "public.whole"}
    _ask(source, "tables.drop", "gone")
    source.goes_on(healed.time)


def test_every_table_that_is_copied_anew_is_dropped(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """The recovery ends without any new copy; what is added later is mirrored."""
    begin = recovery.begin

    def begin_and_drop(attempt: Attempt) -> None:
        begin(attempt)
        source.database.execute("DROP TABLE plain, whole", user="app")

    monkeypatch.setattr(recovery, "begin", begin_and_drop)
    drop_slots(source.database)
    last = source.lake.marks()[-1]
    with pytest.raises(HeadraceError) as gone:
        source.once(reconcile=True)
    assert gone.value.code == "TABLE_CHANGED"
    healed = source.lake.marks()[-1]
    assert (healed.time > last.time, healed.versions) == (True, {})
    _ask(source, "tables.drop", "plain", "whole")
    _ask(source, "tables.add", "late", "late_full")
    _of_late(source, LATE_CHANGE, "new")
    source.once()
    source.proved()
    assert set(source.lake.marks()[-1].versions) == LATE


@pytest.mark.spark
@pytest.mark.full
@pytest.mark.parametrize("where", ["copy.range.after@public.whole", "reconcile.before"])
def test_while_new_copies_are_in_the_lake(source: Source, where: str) -> None:
    _ask(source, "resync", "plain", "whole")
    source.change()
    mirror = Mirrored(source.path, source.database.url(user="app"), "public.*")
    try:
        mirror.start("--once", environment={"HEADRACE_FAILPOINT": f"{where}=kill"})
        assert mirror.wait() == -9, mirror.log()
    finally:
        mirror.close()
    drop_slots(source.database)
    source.change()
    source.heal("PG_SLOT_MISSING")
