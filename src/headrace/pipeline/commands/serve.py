"""Requests, as the owner of a source carries them out: one room for all that a command may ask of a run.

    command ── ask ──► _headrace/requests/ ──► CommandQueue, once a turn of the loop ──► a deed ──► the answer

A *deed* is a function of the source's owner and the request's arguments; `DEEDS` lists them by kind, and a
new kind is a line there. What it returns is the answer, as JSON can hold it. An error of our families is
an answer too, with its code and hint, and never ends the run; but for one that came in the midst of an
epoch, after which only a new attempt knows where the source stands: it finds the request still waiting.

A deed runs on the loop's thread, where nothing else changes the source, and must be short. One that has to
wait for something (a lock, a server) is a generator, and hands that part out:

    def add(owner, arguments):
        found = yield partial(examine, ...)      done in a thread of its own; the loop goes on
        owner.publish(Epoch(...))                on the loop's thread again
        return {"tables": [...]}

What the run itself wants of its tables (`run_internal`) goes on beside a request that is about none
(`BESIDE`), which may take hours; never beside one that may be about the same tables.

An owner may be ended between a deed and its answer, so a deed must bear being done twice. The same deeds
serve a command that finds no living owner (`ask`): to them the owner is whoever has the fence.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.lake.format import requests
from headrace.lake.format.requests import Request
from headrace.lake.store.local import LocalStore
from headrace.pipeline.commands import add_drop, iceberg
from headrace.pipeline.commands.capture import Capturing
from headrace.pipeline.commands.resync import resync
from headrace.pipeline.maintain.maintenance import maintain
from headrace.pipeline.state.owner import REACH, Answer, Errand, Owner, Steps, beside

POLL_SECONDS = 0.5
POLL_SECONDS_AFAR = 10.0  # of an object store, where each look is paid for


Deed = Callable[[Owner, Mapping[str, Any]], Answer | Steps]


def _reach(owner: Owner, arguments: Mapping[str, Any]) -> dict[str, str]:
    """Make a mark at this frontier as soon as the stream is there, even if it is idle."""
    owner.reach(from_record(Position, arguments["frontier"]))
    return {"frontier": str(owner.ledger.frontier)}


DEEDS: dict[str, Deed] = {
    "tables.add": add_drop.add,
    "tables.drop": add_drop.drop,
    REACH: _reach,
    "maintain": maintain,
    "resync": resync,
    "iceberg.attach": iceberg.attach,
    "iceberg.rebuild": iceberg.rebuild,
    "iceberg.detach": iceberg.detach,
}
BESIDE = frozenset(
    ("maintain", REACH, "iceberg.attach", "iceberg.rebuild", "iceberg.detach")
)  # requests that neither choose tables nor copy any


def deed(kind: str, deeds: Mapping[str, Deed] = DEEDS) -> Deed:
    """The work that a kind of request asks for."""
    if kind not in deeds:
        raise Misconfigured(
            "REQUEST_UNKNOWN",
            f'the process that runs this source does not know how to "{kind}"',
            hint="stop it and start it again with the newer version",
        )
    return deeds[kind]


@dataclass(slots=True)
class _InHand:
    """Steps that are being carried out, and the part of them that was handed out."""

    request: Request | None  # None: the run asks itself
    steps: Steps
    errand: Errand
    result: Future[Any]


@dataclass(slots=True)
class CommandQueue:
    """A queue from which a run takes requests, one after another, without ever waiting for one."""

    deeds: Mapping[str, Deed] = field(default_factory=lambda: DEEDS)
    polled_at: float = 0.0
    in_hand: _InHand | None = None  # a request
    own: _InHand | None = None  # what the run asks itself

    @property
    def may_run_internal(self) -> bool:
        """Tell whether nothing is under way that may be about tables."""
        request = None if self.in_hand is None else self.in_hand.request
        return self.own is None and (request is None or request.kind in BESIDE)

    @property
    def is_busy(self) -> bool:
        """Tell whether anything is under way."""
        return self.in_hand is not None or self.own is not None

    @property
    def captures(self) -> frozenset[TableName]:
        """The tables whose changes somebody sees to be captured at this moment."""
        steps = (each.errand for each in (self.in_hand, self.own) if each is not None)
        return frozenset(name for step in steps if isinstance(step, Capturing) for name in step.names)

    def turn(self, owner: Owner) -> bool:
        """Once a turn of the loop: do what there is to do now; whether anything was done."""
        own = self._go_on(owner, self.own)
        if self.in_hand is not None:
            return self._go_on(owner, self.in_hand) or own
        if self.own is not None:
            return own
        every = POLL_SECONDS if isinstance(owner.place.store, LocalStore) else POLL_SECONDS_AFAR
        if time.monotonic() - self.polled_at < every:
            return own
        waiting = requests.pending(owner.place.store, owner.ledger.name)
        if waiting:
            self._answer(owner, waiting[0], lambda: self._begin(owner, waiting[0]))
        else:
            self.polled_at = time.monotonic()
        return bool(waiting) or own

    def run_internal(self, owner: Owner, steps: Steps) -> None:
        """Carry out what the run itself wants, which nobody answers; its errors are the caller's to find."""
        assert self.may_run_internal
        self._answer(owner, None, lambda: self._step(None, steps, lambda: next(steps)))

    def _begin(self, owner: Owner, request: Request) -> Answer | None:
        begun = deed(request.kind, self.deeds)(owner, request.arguments)
        if not isinstance(begun, Generator):
            return begun
        return self._step(request, begun, lambda: next(begun))

    def _go_on(self, owner: Owner, last: _InHand | None) -> bool:
        if last is None or not last.result.done():
            return False
        self._put(last.request, None)
        steps = last.steps
        self._answer(
            owner,
            last.request,
            lambda: self._step(last.request, steps, lambda: steps.send(last.result.result())),
        )
        return True

    def _step(self, request: Request | None, steps: Steps, advance: Callable[[], Errand]) -> Answer | None:
        """To the next part that is handed out, or to the answer."""
        try:
            errand = advance()
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        self._put(request, _InHand(request, steps, errand, beside(errand)))
        return None

    def _put(self, request: Request | None, step: _InHand | None) -> None:
        if request is None:
            self.own = step
        else:
            self.in_hand = step

    def _answer(self, owner: Owner, request: Request | None, act: Callable[[], Answer | None]) -> None:
        try:
            outcome = act()
        except HeadraceError as error:
            if owner.ledger.is_incomplete:
                raise
            outcome = {"error": to_record(error)}
        if outcome is not None and request is not None:
            requests.answer(owner.place.store, owner.ledger.name, request, outcome)


def at_once(owner: Owner, kind: str, arguments: Mapping[str, Any]) -> Answer:
    """Carry out a request here and now, whatever it waits for."""
    begun = deed(kind)(owner, arguments)
    if not isinstance(begun, Generator):
        return begun
    try:
        errand = next(begun)
        while True:
            errand = begun.send(errand())
    except StopIteration as end:
        answer: Answer = end.value
        return answer
