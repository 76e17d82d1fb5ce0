"""Running several writers in one chosen order, one atomic operation at a time.

Each actor is a thread that waits at a gate before every operation on the shared world; exactly one of them
is ever awake. So a run is a function of two choices per step (who goes on, and what goes wrong there), and
any run can be repeated from its list of choices. Operations themselves are atomic, as they are in the
stores and logs that they stand for.

    crash   the actor ends here, as by kill -9: nothing after this point happens
    fail    the operation is not carried out; the actor is told `Transient`
    lost    the operation is carried out; the actor is told `Transient` all the same
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import TypeVar

from headrace.core.errors import Transient

T = TypeVar("T")

CRASH, FAIL, LOST = "crash", "fail", "lost"


class Crashed(BaseException):
    """The actor was killed; nothing may catch this but the end of its thread."""


@dataclass(frozen=True, slots=True)
class Choices:
    """A run: where to switch to which actor, and what goes wrong at which step.

    Between two switches the actor that runs goes on until it ends; then the next one in order does.
    """

    switches: Mapping[int, str] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)

    def who(self, step: int, ready: Sequence[str], last: str | None) -> str:
        wanted = self.switches.get(step, last)
        return wanted if wanted is not None and wanted in ready else ready[0]

    def fault(self, step: int) -> str | None:
        return self.faults.get(step)


@dataclass
class RandomChoices:
    """A run drawn from a seed; keeps to one actor for a while, so that runs get somewhere."""

    random: Random
    switch: float = 0.15
    trouble: float = 0.02

    def who(self, step: int, ready: Sequence[str], last: str | None) -> str:
        if last in ready and self.random.random() > self.switch:
            return str(last)
        return self.random.choice(list(ready))

    def fault(self, step: int) -> str | None:
        if self.random.random() < self.trouble:
            return self.random.choice([CRASH, FAIL, LOST])
        return None


class Actor:
    """One thread of control; its code calls `do` for everything that others can see."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ended = False
        self.error: BaseException | None = None
        self._turn = threading.Lock()
        self._back = threading.Lock()
        self._fault: str | None = None
        self._turn.acquire()
        self._back.acquire()

    def do(self, operation: Callable[[], T]) -> T:
        self._back.release()
        self._turn.acquire()
        fault = self._fault
        if fault == CRASH:
            raise Crashed
        if fault == FAIL:
            raise _trouble()
        result = operation()
        if fault == LOST:
            raise _trouble()
        return result

    def start(self, body: Callable[[Actor], None]) -> None:
        threading.Thread(target=self._run, args=(body,), daemon=True).start()
        self._back.acquire()

    def resume(self, fault: str | None) -> None:
        """Let the actor carry out one operation, and wait until it stands at the next."""
        self._fault = fault
        self._turn.release()
        self._back.acquire()

    def _run(self, body: Callable[[Actor], None]) -> None:
        try:
            body(self)
        except Crashed:
            pass
        except BaseException as error:  # noqa: BLE001 - told to the scheduler, which raises it
            self.error = error
        self.ended = True
        self._back.release()


def run(
    bodies: Mapping[str, Callable[[Actor], None]],
    choices: Choices | RandomChoices,
    after_each: Callable[[], None],
    limit: int = 5000,
) -> int:
    """Run the actors to their ends in the chosen order; return how many steps there were."""
    actors = {name: Actor(name) for name in bodies}
    for name, actor in actors.items():
        actor.start(bodies[name])
    last: str | None = None
    for step in range(limit):
        _raise_errors(actors.values())
        ready = [name for name, actor in actors.items() if not actor.ended]
        if not ready:
            return step
        last = choices.who(step, ready, last)
        actors[last].resume(choices.fault(step))
        after_each()
    raise AssertionError(f"no end after {limit} steps")


def _raise_errors(actors: Iterable[Actor]) -> None:
    for actor in actors:
        if actor.error is not None:
            raise actor.error


def _trouble() -> Transient:
    return Transient("TEST_TROUBLE", "the world failed here", hint="try again")
