"""Whoever has the fence of a source, as those see it that work for it.

    Run      the loop of a run, which keeps the fence while it streams
    Alone    a command that found nobody, and holds the fence for as long as it takes

What a command asks for is done with an `Owner` and nothing else, so that the same function serves both. It
runs on the owner's thread; what has to wait is handed out as an `Errand`, one step of `Steps` each, which is
done in a thread of its own and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.place import RunContext
from headrace.sources.contract.mirror import Mirror

Errand = Callable[[], Any]


def beside(errand: Errand) -> Future[Any]:
    """Do it in a thread of its own."""
    with_one = ThreadPoolExecutor(1, "headrace-errand")
    done = with_one.submit(errand)
    with_one.shutdown(wait=False)
    return done


class Warner(Protocol):
    """A person to warn: the operator reads in the status what a run goes on with all the same.

    Who warns says when it is over: a warning without an end is believed by nobody.
    """

    def warn(self, code: str, primary: str) -> None: ...
    def clear(self, code: str) -> None: ...
    def gave_up(self, name: TableName, error: HeadraceError) -> None: ...


class Owner(Protocol):
    """Whoever has the fence of a source: a `Run`, or a command that took it."""

    @property
    def place(self) -> RunContext: ...
    @property
    def ledger(self) -> Ledger: ...
    @property
    def mirror(self) -> Mirror: ...
    def publish(self, epoch: Epoch) -> None: ...
    def reach(self, frontier: Position) -> None: ...


Answer = Mapping[str, Any]


Steps = Generator[Errand, Any, Answer]
