"""The owner of a source's fence, as the code that works for it sees it.

    Run      the loop of a run, which keeps the fence while it streams
    Alone    a command that found no run, and holds the fence for as long as it takes

The work of a command needs only an `Owner`, so one function serves both. It runs on the owner's thread. Work
that has to wait is an `Errand`, one step of `Steps` each, which runs in a thread of its own and changes
nothing.
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
    """Run the errand in a thread of its own."""
    with_one = ThreadPoolExecutor(1, "headrace-errand")
    done = with_one.submit(errand)
    with_one.shutdown(wait=False)
    return done


class Warner(Protocol):
    """A way to warn the operator, in the status, of a trouble in spite of which the run goes on.

    The code that warns must also end the warning: nobody believes a warning that never ends.
    """

    def warn(self, code: str, primary: str) -> None: ...
    def clear(self, code: str) -> None: ...
    def gave_up(self, name: TableName, error: HeadraceError) -> None: ...


class Owner(Protocol):
    """The owner of a source's fence: a `Run`, or a command that took it."""

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
