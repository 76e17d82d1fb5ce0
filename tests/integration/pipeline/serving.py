"""A mirror that goes on, in a thread of this process: for what must happen while it runs.

with serving(mirrors) as served:
    served.until(lambda: ..., "what is waited for")
...                                 it was stopped and has ended without an error, or with the one foretold
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psutil

import headrace
from headrace.core.errors import HeadraceError
from headrace.lake.format.status import PositionStatus, SourceStatus
from headrace.sources.postgres.position import Lsn
from headrace_testing.postmaster import wait_for
from tests import nursery
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration


@dataclass
class Served:
    """The statuses of a running mirror, and how it ended if it has."""

    mirrors: Mirrors
    state: str = "unheard of"
    records: int = 0  # that it wrote, about one a second
    position: PositionStatus | None = None  # what it last said of where it is
    codes: list[str] = field(default_factory=list)  # of the errors that it met and went on from
    ended: list[HeadraceError | None] = field(default_factory=list)

    def hear(self, said: SourceStatus) -> None:
        """Listen to a status."""
        self.state = said.state
        self.records += 1
        self.position = said.position or self.position
        if said.error:
            self.codes.append(said.error["code"])

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for a condition while the mirror runs."""

        def holds() -> bool:
            assert not self.ended, f"it ended while {what} was waited for: {self.ended}"
            return condition()

        wait_for(holds, what)

    def holds(self, table: str, rows: int) -> bool:
        """Tell whether the newest mark names the table, with so many rows."""
        cut = self.mirrors.lake.at()
        return table in cut.marks["main"].versions and cut.arrow(table).num_rows == rows

    def received(self, position: Lsn) -> bool:
        """Tell whether its stream has come so far."""
        return self.position is not None and Lsn.parse(self.position.received_until) >= position

    @property
    def receiver(self) -> psutil.Process:
        """The receiver process of the mirror."""

        wait_for(lambda: bool(nursery.running()), "a receiver")
        return nursery.running()[0]


@contextmanager
def serving(mirrors: Mirrors, *, ends_with: str | None = None, **sections: Any) -> Iterator[Served]:
    """See the module's essay. The lake must have been run `--once` before."""
    served, stop = Served(mirrors), threading.Event()
    config = configuration(mirrors.path, url=mirrors.database.url(user="app"), **mirrors.options) | sections

    def run() -> None:
        try:
            headrace.mirror(config, spark=mirrors.spark, stop=stop, listener=served.hear)
            served.ended.append(None)
        except HeadraceError as error:
            served.ended.append(error)

    thread = threading.Thread(target=run, name="served-mirror")
    thread.start()
    try:
        served.until(lambda: served.state == "running", "the beginning")
        yield served
    finally:
        stop.set()
        thread.join()
    assert [error and error.code for error in served.ended] == [ends_with], served.ended
