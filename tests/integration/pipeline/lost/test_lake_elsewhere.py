"""A lake that lies elsewhere: moved, or a copy, which must not take the original's place upstream."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

import headrace
from headrace.cli.main import main
from headrace.core.errors import HeadraceError
from headrace.lake.format import statusfile
from headrace.lake.format.formatfile import open_lake
from headrace.pipeline.state import ownership
from headrace.spool.process import this_process
from headrace_testing.postgres import Database
from tests.integration.pipeline.lost.losing import Source
from tests.integration.pipeline.refused import configuration, upstream

pytestmark = pytest.mark.server


def _refused(source: Source, **asked: object) -> HeadraceError:
    with pytest.raises(HeadraceError) as caught:
        _run(source, **asked)
    return caught.value


def _run(source: Source, **asked: object) -> None:
    url = source.database.url(user="app")
    headrace.mirror(configuration(source.path, url=url), spark=source.spark, once=True, **asked)  # type: ignore[arg-type]


def test_a_copy_of_a_lake_takes_nothing_from_the_original(source: Source, tmp_path: Path) -> None:
    """It says so before it does anything; asked once, both go on, each with objects of its own."""
    copied = Source(tmp_path / "copy", source.spark, source.database)
    shutil.copytree(source.path, copied.path)
    made, url = upstream(source.database), source.database.url(user="app")
    assert headrace.verify(configuration(copied.path, url=url), spark=source.spark)  # it only reads
    source.change()
    error = _refused(copied)
    assert error.code == "LAKE_ELSEWHERE"
    assert str(source.path) in (error.detail or "")
    assert ("--moved" in error.hint, "--copy" in error.hint) == (True, True)
    with _claimed_by_the_original(copied):
        begun = time.monotonic()
        assert main(["tables", "resync", "--lake", str(copied.path), "plain"]) == 2
        assert main(["maintain", "--dry-run", "--lake", str(copied.path)]) == 2
        assert time.monotonic() - begun < ownership.FRESH_SECONDS
    assert main(["drop", url, "--yes", "--lake", str(copied.path)]) == 2
    assert upstream(source.database) == made
    source.once()
    source.proved()
    assert "--reconcile" in _refused(copied, elsewhere="copy").hint
    _run(copied, reconcile=True)
    assert open_lake(copied.lake.store).lake_id != open_lake(source.lake.store).lake_id
    for each in (source, copied, source):
        source.change()
        each.once()
        each.proved()
    slots = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    assert len(source.database.execute(slots)) == 2


@contextmanager
def _claimed_by_the_original(copied: Source) -> Iterator[None]:
    """The copy was made while a run of the original was alive: it has that one's last word."""
    store = copied.lake.store
    last = statusfile.read(store, "main")
    assert last is not None
    owner = {**this_process("then"), "pid": os.getppid()}
    statusfile.write(store, "main", replace(last.record, state="running", owner=owner))
    yield
    statusfile.write(store, "main", last.record)


def test_a_lake_that_was_moved_goes_on_where_it_was(source: Source, tmp_path: Path) -> None:
    moved = Source(tmp_path / "elsewhere", source.spark, source.database)
    shutil.move(source.path, moved.path)
    source.change()
    made = upstream(source.database)
    assert _refused(moved).code == "LAKE_ELSEWHERE"
    _run(moved, elsewhere="moved")
    source.change()
    moved.once()  # asked once
    moved.proved()
    (tmp_path / "link").symlink_to(moved.path)
    Source(tmp_path / "link", source.spark, source.database).once()
    assert upstream(source.database) == made
    assert main(["drop", source.database.url(user="app"), "--yes", "--lake", str(moved.path)]) == 0


def test_a_copy_that_would_share_a_users_slot_is_refused(
    database: Database, tmp_path: Path, source: Source
) -> None:
    database.execute("CREATE PUBLICATION theirs FOR TABLE plain, whole", user="app")
    database.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
    named = {"publication": "theirs", "slot": "theirs"}
    first = Source(tmp_path / "named", source.spark, database, **named)
    first.once()
    copied = Source(tmp_path / "copy", source.spark, database)
    shutil.copytree(first.path, copied.path)
    before = open_lake(copied.lake.store)
    assert _refused(copied, elsewhere="copy").code == "LAKE_COPY_SHARED"
    assert open_lake(copied.lake.store) == before
    database.execute("SELECT pg_drop_replication_slot('theirs')")
