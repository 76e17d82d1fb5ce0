"""A table that is added to a running mirror while it is written, and so are those that were there before."""

from __future__ import annotations

from contextlib import ExitStack, closing

import pytest

from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.workload import Keyed, Transfers, make_tables, running
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole, kinds, onward
from tests.nursery import Nursery

pytestmark = pytest.mark.server


@kinds("mariadb")
def test_tables_that_are_added_under_writes_join_exactly(
    mirror: Mirror, database: Database, nursery: Nursery, seed: int
) -> None:
    """The receiver begins anew for them, since it has kept nothing of theirs; what it had comes again."""
    url, work = mirror.place.owner_url, (Keyed(rows=50, keys=100), Transfers())
    first = {str(mirror.place.table("keyed"))}
    late = {str(mirror.place.table(name)) for name in Transfers().names}
    make_tables(url, *work)
    with closing(Mirrored(mirror.path, mirror.place.url, *first, program=nursery.run)) as process:
        with ExitStack() as writers:
            for kind in work:
                writers.enter_context(running(kind, url, seed=seed, writers=1, pause=0.02, prepare=False))
            process.start()
            process.until_live(within=60)
            onward(process, 2)
            for name in Transfers().names:
                mirror.ask("tables.add", name)
            process.until_live(within=60)
            onward(process, 3, transactions=50)
        assert process.stop() == 0, process.log()
    lake = mirror.once(tables=list(first))
    having = [set(mark.versions) for mark in lake.marks()]
    assert first in having
    assert having[-1] == first | late
    assert having == sorted(having, key=len)  # none leaves while others come
    assert_exact(lake, url)
    assert_whole(lake, database.name, times=10)
