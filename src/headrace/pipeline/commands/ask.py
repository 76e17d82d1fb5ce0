"""The command's side: it gets something done that only the owner of a source may do.

    somebody owns the source and is alive   leave a request, wait for the answer
    nobody does                             take the fence and do it here, with the same deed (`serve`)

The wait is bounded by the owner's life alone: when it ends without an answer the command takes its request
back and does it itself. If a run begins in between, the command leaves the source to it and asks that one: it
looks once more just before it takes the fence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.position import Position
from headrace.core.records import from_record
from headrace.lake.format import requests, statusfile
from headrace.lake.format.statusfile import Status
from headrace.lake.log.durable import fenced_error
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.pipeline.commands.serve import at_once
from headrace.pipeline.state import last_config, policy
from headrace.pipeline.state.config import Config
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import Answer, RunContext, open_contexts
from headrace.pipeline.state.ownership import ENDED, is_heard_here, living_owner
from headrace.sources import registry
from headrace.sources.contract.mirror import Mirror

ANSWER_SECONDS = 0.1
ALIVE_SECONDS = 2.0


def ask(
    path: str, kind: str, arguments: Mapping[str, Any], *, source: str | None = None, url: str | None = None
) -> Answer:
    """The answer of the source's owner, whoever that is; raises the error that it answered with.

    `url` is where the source is, if not where it was: for a command that has to connect by itself.
    """
    store = Lake(path).store
    name = the_source(path, source)
    while True:
        status = statusfile.read(store, name)
        if is_heard_here(store, name) and living_owner(store, name) is not None:
            answer = _ask_owner(store, name, kind, arguments)
            if answer is not None:
                return _good(answer)
        try:
            with alone(path, name, status, url=url) as owner:
                return at_once(owner, kind, arguments)
        except HeadraceError as error:
            if not policy.disowns(error):
                raise


def the_source(path: str, source: str | None) -> str:
    """The source that is meant: the one that is named, or the only one that the lake has."""
    known = last_config.sources(path)
    if source is None and len(known) == 1:
        return next(iter(known))
    if source is None and known:
        raise Misconfigured(
            "LAKE_SOURCE_AMBIGUOUS",
            "this lake has several sources",
            hint=f"name one with --source: {', '.join(sorted(known))}",
        )
    if source is None or source not in known:
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            "this lake has mirrored no source yet"
            if source is None
            else f'this lake has no source "{source}"',
            hint=f"name one of: {', '.join(sorted(known))}" if known else "headrace run mirrors one",
        )
    return source


def _ask_owner(store: Store, source: str, kind: str, arguments: Mapping[str, Any]) -> Answer | None:
    """The owner's answer; None where it ended without one. Nothing of ours is left behind."""
    request = requests.ask(store, source, kind, arguments)
    try:
        while True:
            again = time.monotonic() + ALIVE_SECONDS
            while time.monotonic() < again:
                answer = requests.answer_to(store, source, request)
                if answer is not None:
                    return answer
                time.sleep(ANSWER_SECONDS)
            if living_owner(store, source) is None:
                return requests.answer_to(store, source, request)
    finally:
        requests.forget(store, source, request)


def _good(answer: Answer) -> Answer:
    if "error" in answer:
        raise from_record(HeadraceError, answer["error"])
    return answer


# --- with nobody to ask -------------------------------------------------------------------------


@dataclass(slots=True)
class Alone:
    """The fence of a source, held by a command for as long as it takes; connects when it has to."""

    place: RunContext
    ledger: Ledger
    _stack: ExitStack
    _mirror: Mirror | None = None

    def publish(self, epoch: Epoch) -> None:
        self.ledger.sync(self.ledger.publish(epoch))

    def reach(self, frontier: Position) -> None:
        """Nothing streams here: no mark comes by itself."""

    @property
    def mirror(self) -> Mirror:
        """The mirror at its server, once somebody asks for it."""
        if self._mirror is None:
            known = self.ledger.source
            assert known is not None
            source = registry.by_kind(known.kind)
            connection = source.connect(self.place.config.address(), role="request")
            self._stack.callback(connection.close)
            self._mirror = connection.mirror(known.upstream, known.identity)
        return self._mirror


@contextmanager
def alone(path: str, source: str, status: Status | None, *, url: str | None = None) -> Iterator[Alone]:
    """The fence of a source that nobody runs; `status` is its status as that was found."""
    known = last_config.configuration_of(path)
    config = known.sources[source]
    if url is not None:
        config = replace(config, url=url)
    with ExitStack() as stack:
        [place] = stack.enter_context(open_contexts(Config(known.lake, {source: config}, known.spark)))
        _leave_to_a_run(place, status)
        ledger = Ledger(place.store, source)
        ledger.sync()  # what the last owner left: a command may delete what the newest mark does not need
        yield Alone(place, ledger, stack)


def _leave_to_a_run(place: RunContext, before: Status | None) -> None:
    """Raise if a run has begun since: it would end where it found the source taken over."""
    now = statusfile.read(place.store, place.name)
    if now is None or now.record.state in ENDED:
        return
    if before is None or now.record.updated_at != before.record.updated_at:
        raise fenced_error(place.name, "a run has begun")
