"""Waiting for a mark that holds all that verify's snapshot shows.

    a run is alive      a request asks it for a mark there; an idle source would make one only once a minute
    nobody runs         the slot is asked whether it holds anything between the last mark and the frontier:
                        where it does not, what the mark holds is what there is at the frontier

Peeking at the slot moves nothing, and is possible only while nobody streams from it. The wait is bounded, and
ends early if the caller's snapshot is lost (`snapshot_check`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Transient
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.lake.format import requests
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.store.contract import Store
from headrace.pipeline.state.owner import REACH
from headrace.pipeline.state.ownership import living_owner
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.contract.mirror import Address

POLL_SECONDS = 0.2
ALIVE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait: the frontier of a source, the longest time, and a check to make meanwhile."""

    store: Store
    name: str
    source: SourceRecord
    address: Address
    frontier: Position
    seconds: float
    check: Callable[[], None]


def marks_from(wait: Wait) -> Iterator[Mark]:
    """Yield the newest mark that holds all before the frontier, and each newer one that comes meanwhile."""
    store, name, frontier = wait.store, wait.name, wait.frontier
    marks = Marks(store, name)
    newest = marks.newest()
    assert newest is not None
    if newest.position < frontier and living_owner(store, name) is None:
        _prove_idle(wait, newest)
        yield newest
        return
    deadline = time.monotonic() + wait.seconds
    seen = -1
    with _request_mark(store, name, frontier):
        while True:
            newest = marks.newest()
            assert newest is not None
            if newest.position >= frontier and newest.epoch > seen:
                yield newest
                seen = newest.epoch
            if time.monotonic() > deadline:
                break
            wait.check()
            time.sleep(POLL_SECONDS)
    if seen < 0:
        raise _behind(newest, frontier, f"it has not got there within {wait.seconds:.0f} s")


@contextmanager
def _request_mark(store: Store, name: str, frontier: Position) -> Iterator[None]:
    """Request the mark for as long as the block runs."""
    request = requests.ask(store, name, REACH, {"frontier": to_record(frontier)})
    try:
        yield
    finally:
        requests.forget(store, name, request)


def _prove_idle(wait: Wait, mark: Mark) -> None:
    source = registry.by_kind(wait.source.kind)
    with closing(source.connect(wait.address, role="verify")) as connection:
        try:
            idle = connection.mirror(wait.source.upstream).is_quiet(mark.position, wait.frontier)
        except HeadraceError as error:
            raise _behind(mark, wait.frontier, f"its log could not be asked: {error.primary}") from None
    if not idle:
        raise _behind(mark, wait.frontier, "nobody runs it")


def _behind(mark: Mark, frontier: Position, why: str) -> Transient:
    """Make the error for a mirror that is behind its source."""
    return Transient(
        "VERIFY_BEHIND",
        "the mirror does not hold all that its source has committed",
        detail=f'its last mark is at "{mark.frontier}", the source was looked at at "{frontier}": {why}',
        hint="have `headrace run` catch up and verify beside it, or with a longer --wait",
    )


def snapshot_check(ask: Callable[[], bool]) -> Callable[[], None]:
    """Make a check that raises once the snapshot is lost; it asks every few seconds."""
    asked = [time.monotonic()]

    def check() -> None:
        if time.monotonic() - asked[0] < ALIVE_SECONDS:
            return
        asked[0] = time.monotonic()
        if not ask():
            raise Transient(
                "VERIFY_SNAPSHOT_GONE",
                "the snapshot that the mirror was to be compared with is no longer held",
                hint="verify again",
            )

    return check
