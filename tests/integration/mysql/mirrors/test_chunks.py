"""A mirror whose tables are copied in chunks: across a kill, under writers, and what befalls them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from headrace.lake.read.lake import Lake
from headrace.pipeline.state.records import tables_of
from headrace.pipeline.state.table_state import State
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.workload import Keyed, Transfers, make_tables, running
from tests.conformance.conftest import Mirror
from tests.conformance.sources import execute
from tests.copied_chunks import ever, unfinished
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole, kinds, onward
from tests.nursery import Nursery

pytestmark = pytest.mark.server

# A chunk of `keyed` is a row or two, so that a copy lasts for many marks, and a kill comes amid it.
CHUNKS = {"handoff": "chunks", "chunk_bytes": 10_000, "snapshot_connections": 1}


@pytest.fixture
def chunked(mirror: Mirror, nursery: Nursery) -> Iterator[Mirrored]:
    """The mirror as a process that copies in chunks; it has not been started."""
    made = Mirrored(mirror.path, mirror.place.url, *mirror.patterns, options=CHUNKS, program=nursery.run)
    with closing(made):
        yield made


@kinds("mysql", releases=True)
def test_a_copy_in_chunks_goes_on_after_a_kill_and_is_exact(
    mirror: Mirror, chunked: Mirrored, database: Database, nursery: Nursery, seed: int
) -> None:
    """Rows move from one chunk to another all the while; what was copied before the kill stays."""
    url = mirror.place.owner_url
    make_tables(url, Keyed(rows=80), Transfers())
    database.execute("ANALYZE TABLE keyed")  # so that it is known how many rows make a chunk
    with (
        running(Keyed(keys=160), url, seed=seed, writers=1, pause=0.05, prepare=False),
        running(Transfers(), url, seed=seed, writers=1, pause=0.1, prepare=False),
    ):
        chunked.start()
        chunked.until(lambda: len(unfinished(mirror.lake)) >= 2, "some chunks in the lake", within=60)
        chunked.kill()
        known = unfinished(mirror.lake)
        fewer = {**CHUNKS, "chunk_bytes": 100_000}  # the rest of the table is soon there
        with closing(
            Mirrored(mirror.path, mirror.place.url, *mirror.patterns, options=fewer, program=nursery.run)
        ) as later:
            later.start()
            later.until_live()
            onward(later, transactions=30)
            assert later.stop() == 0, later.log()
    assert known <= ever(mirror.path), "what was copied before the kill was not copied again"
    lake = mirror.once()
    assert_exact(lake, url)
    assert_whole(lake, database.name, times=10)


@kinds("mariadb")
def test_what_is_done_to_a_table_between_its_chunks_is_seen(
    mirror: Mirror, chunked: Mirrored, database: Database
) -> None:
    """One is emptied, which is data; one is altered, one is made anew: both are copied as they are then."""
    place = mirror.place
    for table in ("altered", "emptied", "renewed"):
        rows = ", ".join(f"({i}, repeat('x', 1000))" for i in range(200))
        execute(
            place, f"CREATE TABLE {table} (id int PRIMARY KEY, v text)", f"INSERT INTO {table} VALUES {rows}"
        )
        execute(place, f"ANALYZE TABLE {table}")
    with chunked.held_up(f"copy.chunk.after@{place.table('emptied')}"):
        execute(
            place,
            "UPDATE emptied SET v = 'before' WHERE id IN (0, 199)",
            "TRUNCATE emptied",
            "INSERT INTO emptied VALUES (5, 'after'), (190, 'after'), (300, 'after')",
            "DELETE FROM emptied WHERE id = 190",
            "DROP TABLE renewed",
            "CREATE TABLE renewed (id int PRIMARY KEY, v text)",
            "INSERT INTO renewed VALUES (1, 'another')",
            "ALTER TABLE altered ADD COLUMN w int FIRST",
        )
    names = ("emptied", "altered", "renewed")
    expected = dict.fromkeys(names, State.LIVE)
    chunked.until(lambda: _states(mirror.lake) == expected, "all of them, as they are now")
    chunked.stop()
    lake = mirror.once()
    assert set(lake.at().mark.versions) == {str(place.table(name)) for name in names}
    assert lake.at().arrow(str(place.table("altered"))).column_names[0] == "w"
    assert_exact(lake, place.url)


def _states(lake: Lake) -> dict[str, State]:
    return {record.name.name: record.state for record in tables_of(lake.catalog()).values()}
