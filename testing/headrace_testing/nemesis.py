"""Faults at seeded moments, with a log of what was done when.

    faults = {**connection_faults(proxy), **server_faults(server), "kill -9": Fault(mirror.kill)}
    with Nemesis(faults, seed=seed) as nemesis:
        wait_for(lambda: len(nemesis.log) >= 20, "twenty faults")

A seed fixes the *schedule* (`schedule()` is a pure function of it): which fault, after which pause, for
how long. What the fault then meets is up to the machine, so a seed repeats a failure often, not always;
the log, printed with every failure, says what really happened. When the block ends, what is broken at
the moment is healed. A fault that fails by itself is a failure of the test: the nemesis stops there,
and the block raises what it raised.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from types import TracebackType

from headrace_testing.postgres import Server
from headrace_testing.proxy import Proxy

Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Fault:
    """Something that breaks, and, if it does not mend itself at once, what mends it after a while."""

    inflict: Callable[[], None]
    heal: Callable[[], None] | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """One fault of a schedule: wait, inflict, let it last, heal."""

    pause: float
    fault: str
    lasting: float


@dataclass(frozen=True, slots=True)
class Deed:
    """A fault that was done, so many seconds after the start."""

    at: float
    done: str

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.done}"


def schedule(
    faults: list[str], seed: int, *, pause: Span = (0.1, 1.5), lasting: Span = (0.1, 1.0)
) -> Iterator[Step]:
    """The endless schedule of a seed; every fault comes once before any comes again."""
    dice = random.Random(seed)
    while True:
        for name in dice.sample(sorted(faults), len(faults)):
            yield Step(round(dice.uniform(*pause), 3), name, round(dice.uniform(*lasting), 3))


class Nemesis:
    """A thread that carries out a schedule until the block ends, or so many times."""

    def __init__(
        self,
        faults: Mapping[str, Fault],
        *,
        seed: int,
        times: int | None = None,
        pause: Span = (0.1, 1.5),
        lasting: Span = (0.1, 1.0),
    ) -> None:
        self.seed = seed
        self.log: list[Deed] = []
        self._faults = dict(faults)
        self._steps = islice(schedule(list(faults), seed, pause=pause, lasting=lasting), times)
        self._stop = threading.Event()
        self._started = time.monotonic()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="nemesis")
        self._work: Future[None] = Future()

    def __enter__(self) -> Nemesis:
        self._started = time.monotonic()
        self._work = self._thread.submit(self._run)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.shutdown()
        failure = self._work.exception()
        if error is not None:
            error.add_note(str(self))
        elif failure is not None:
            failure.add_note(str(self))
            raise failure

    def __str__(self) -> str:
        return "\n".join([f"nemesis, seed {self.seed}:", *map(str, self.log)])

    @property
    def finished(self) -> bool:
        """Tell whether every fault that was asked for has been done, or one has failed."""
        return self._work.done()

    def wait(self, deadline: float = 300.0) -> None:
        """Return when all of `times` faults are done; raise what a fault raised."""
        self._work.result(deadline)

    def _run(self) -> None:
        for step in self._steps:
            if self._stop.wait(step.pause):
                return
            self._do(step)

    def _do(self, step: Step) -> None:
        fault = self._faults[step.fault]
        self._note(step.fault)
        fault.inflict()
        if fault.heal is not None:
            self._stop.wait(step.lasting)
            fault.heal()
            self._note(f"{step.fault}: healed")

    def _note(self, done: str) -> None:
        self.log.append(Deed(time.monotonic() - self._started, done))


def connection_faults(proxy: Proxy, *, delay: float = 0.3, rate: float = 30_000) -> dict[str, Fault]:
    """The faults of a network on connections that go through the proxy."""
    return {
        "cut": Fault(proxy.cut),
        "stall": Fault(proxy.stall, proxy.resume),
        "half-open": Fault(proxy.half_open),
        "delay": Fault(lambda: proxy.delay(delay), lambda: proxy.delay(0.0)),
        "throttle": Fault(lambda: proxy.throttle(rate), lambda: proxy.throttle(None)),
        "refuse": Fault(proxy.refuse, proxy.admit),
    }


def server_faults(server: Server) -> dict[str, Fault]:
    """The faults of a server: it stops without a checkpoint, or dies; after a while it is back."""
    return {
        "immediate stop": Fault(lambda: server.stop("immediate"), server.start),
        "crash": Fault(server.crash, server.start),
    }
