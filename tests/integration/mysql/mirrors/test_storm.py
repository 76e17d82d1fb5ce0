"""Transfers between two tables all the time, while the mirror is killed and its connections are cut.

writers    ════════════════════════════════════════════════════▶
mirror     copy ✝   copy ── live ──── ✂ ──── ✝   live ──── end   once
                             └─ in the seed's order, at its marks ─┘
"""

from __future__ import annotations

import random
import signal
from collections.abc import Callable, Mapping
from contextlib import closing

import pytest

from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from headrace_testing.workload import Transfers, running
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import assert_exact, assert_whole, kinds, onward
from tests.nursery import Nursery

pytestmark = pytest.mark.server


@kinds("mysql", releases=True)
@pytest.mark.parametrize("faults", [1, pytest.param(10, marks=pytest.mark.full)])
def test_transfers_stay_whole_whatever_befalls_the_mirror(
    mirror: Mirror, database: Database, nursery: Nursery, seed: int, faults: int
) -> None:
    """`faults` of each kind while the stream flows, and a kill within the snapshot."""
    server, dice = database.server, random.Random(seed)
    with Proxy(server.host, server.port) as proxy:
        url = database.url(user="mirror", port=proxy.port)
        process = Mirrored(mirror.path, url, *mirror.patterns, program=nursery.run)
        with closing(process):
            with running(Transfers(), mirror.place.owner_url, seed=seed, pause=0.02) as work:
                wait_for(lambda: work.committed > 20, "some transfers to copy")
                process.start(environment={"HEADRACE_FAILPOINT": "copy.range.after=kill"})
                assert process.wait() == -signal.SIGKILL, process.log()
                process.start()
                process.until_live()
                deeds: Mapping[str, Callable[[], None]] = {"kill": process.kill, "cut": proxy.cut}
                for kind in dice.sample(sorted(deeds) * faults, 2 * faults):
                    onward(process, dice.randint(1, 4))
                    deeds[kind]()
                    if kind == "kill":
                        process.start()
                onward(process, 2)
            assert process.stop() == 0, process.log()
    lake = mirror.once()
    assert_exact(lake, mirror.place.url)
    assert_whole(lake, database.name, times=40 * faults)
