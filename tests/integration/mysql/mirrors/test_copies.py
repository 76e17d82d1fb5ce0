"""A copy that lasts for longer than the server lets a session of ours sleep."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from headrace.core.schema import Column
from headrace.pipeline.copy import snapshot
from headrace.sources.contract.copying import Piece, Reading
from headrace.sources.mysql.snapshot import locks
from headrace.sources.mysql.snapshot.moment_reader import MomentReader
from headrace.testing.mysql import Database
from headrace.testing.postmaster import wait_for
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, kinds

pytestmark = pytest.mark.server

SLEEP_SECONDS = 1


@kinds("mysql")
def test_a_snapshot_lasts_for_as_long_as_its_readers_read(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who holds it has nothing else to do meanwhile, and the server ends sessions that say nothing."""
    monkeypatch.setattr(locks, "_USUAL_SECONDS", SLEEP_SECONDS)
    monkeypatch.setattr(snapshot, "AWAKE_SECONDS", SLEEP_SECONDS / 5)
    for name in ("a", "b"):
        database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY)")
        database.execute(f"INSERT INTO {name} VALUES (1), (2)")
    times = Counter[str]()
    read = MomentReader.read

    @contextmanager
    def slowly(reader: MomentReader, columns: Sequence[Column], piece: Piece) -> Iterator[Reading]:
        times[piece.table.name] += 1
        with read(reader, columns, piece) as reading:
            yield reading
        if times.total() > 1:
            return
        leader = reader._follower._ticket.connection
        there = f"SELECT COUNT(*) FROM information_schema.processlist WHERE id = {leader}"
        end = time.monotonic() + 2.5 * SLEEP_SECONDS
        wait_for(lambda: time.monotonic() > end or database.execute(there) == [(0,)], "the leader stays")

    monkeypatch.setattr(MomentReader, "read", slowly)
    lake = mirror.once(snapshot_connections=1)
    assert times == {"a": 1, "b": 1}
    assert_exact(lake, mirror.place.url)
