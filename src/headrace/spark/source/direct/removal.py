"""A state folder without its query: what it holds, and how to take it away.

A query that was given up keeps its objects at the source, and the source keeps its log for them. Nobody but a
person knows that it will not come back.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.lake.store.open import open_store
from headrace.sources import registry
from headrace.sources.contract.mirror import Health
from headrace.spark.source.direct.state import StateFolder, read_state


@dataclass(frozen=True, slots=True)
class StateReport:
    """The report of a state folder, as `headrace status --state` prints it."""

    id: str
    address: str
    tables: tuple[str, ...]
    offered_batch: int  # batches
    committed_batch: int
    position: str | None  # the end of the newest batch
    source: tuple[str, ...]  # what the source holds for it
    retained_bytes: int | None = None  # of the source's log
    error: str | None = None  # why the source cannot be asked

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def lines(self) -> Iterator[str]:
        """The report for people."""
        yield f"{self.address}: {', '.join(self.tables) or 'nothing was offered yet'}"
        yield f"  batches: {self.offered_batch} offered, {self.committed_batch} committed" + (
            "" if self.position is None else f", up to {self.position}"
        )
        yield from (f"  {line}" for line in self.source)
        if self.error is not None:
            yield f"  the source cannot be asked: {self.error}"


def report(path: str) -> StateReport:
    """Look at a folder, and ask its source what it holds for it."""
    state = _open(path)
    begun = state.beginning
    health, error = Health(), None
    try:
        health = _health(state)
    except HeadraceError as refusal:
        error = f"{refusal.code}: {refusal.primary}"
    source = registry.by_kind(state.record.kind)
    return StateReport(
        id=state.record.id,
        address=str(source.address(state.record.address)),
        tables=() if begun is None else tuple(str(table.name) for table in begun.tables),
        offered_batch=state.newest,
        committed_batch=state.committed_batch,
        position=None if begun is None else str(state.end_of(state.newest)),
        source=health.lines,
        retained_bytes=health.retained_bytes,
        error=error,
    )


def _health(state: StateFolder) -> Health:
    source, record = registry.by_kind(state.record.kind), state.record
    with closing(source.connect(source.address(record.address), role="status")) as connection:
        upstream = record.upstream if state.beginning is None else state.beginning.upstream
        return connection.mirror(upstream).health()


def removable(path: str, url: str | None = None) -> list[str]:
    """The objects at the source that `remove` would drop now."""
    return _drop(_open(path), url, rehearse=True)


def remove(path: str, url: str | None = None) -> Iterator[str]:
    """Drop what was made at the source for a state, then delete its files; says what it did."""
    state = _open(path)
    state.take_over()
    removed = _drop(state, url, rehearse=False)
    yield from (f"dropped {each}" for each in removed)
    if not removed:
        yield "nothing of ours was at the source"
    state.remove()
    shutil.rmtree(state.record.spool, ignore_errors=True)  # on another machine it is worth nothing
    yield f'deleted the files of the state "{state.store.url}"'


def _drop(state: StateFolder, url: str | None, *, rehearse: bool) -> list[str]:
    source = registry.by_kind(state.record.kind)
    upstream = state.record.upstream if state.beginning is None else state.beginning.upstream
    address = source.address(url or state.record.address)
    return [] if source.drop is None else source.drop(address, upstream, rehearse)


def _open(path: str) -> StateFolder:
    store = open_store(path)
    state = read_state(store)
    if state is None:
        raise Misconfigured(
            "DIRECT_STATE_NONE",
            f'there is no state of a query at "{store.url}"',
            hint='give the folder of .option("state", DIR)',
        )
    state.load()
    return state
