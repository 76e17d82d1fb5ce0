"""Commits whose times fall and jump: a moment is the longest beginning that had none later."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from headrace.core.errors import HeadraceError
from headrace.lake.read.lake import Lake
from headrace_testing.mysql import Database
from headrace_testing.mysql.server import run
from headrace_testing.postmaster import wait_for
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, kinds
from tests.integration.mysql.stream.test_ended import clock

pytestmark = pytest.mark.server


def _ids(lake: Lake, name: str, moment: int) -> list[int]:
    cut = lake.at(timestamp=datetime.fromtimestamp(moment, UTC))
    return sorted(cut.arrow(name)["id"].to_pylist())


@kinds("mariadb")
def test_a_moment_is_the_longest_beginning_that_had_no_later_commit(
    mirror: Mirror, database: Database
) -> None:
    name = str(mirror.place.table("t"))
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    mirror.once()
    database.execute("INSERT INTO t VALUES (0)")
    now = int(time.time()) + 1
    wait_for(lambda: time.time() >= now, "the next second")
    ahead, back = now + 2, now - 86_400
    with database.connect() as connection:
        for number, stamp in ((1, ahead), (2, back), (3, now)):
            for statement in (*clock(database.server, stamp), f"INSERT INTO t VALUES ({number})"):
                run(connection, statement)
    wait_for(lambda: time.time() >= ahead + 1, "the clock has caught up")
    database.execute("INSERT INTO t VALUES (4)")
    lake = mirror.once()
    assert _ids(lake, name, now + 1) == [0]
    assert _ids(lake, name, ahead) == [0, 1, 2, 3]
    with pytest.raises(HeadraceError) as refused:
        _ids(lake, name, back)
    assert refused.value.code == "LAKE_NO_MARK"
    assert lake.at().arrow(name).num_rows == 5
    assert_exact(lake, mirror.place.url)
