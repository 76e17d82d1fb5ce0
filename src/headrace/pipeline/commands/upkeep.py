"""Maintenance by a run itself: it leaves itself a request, as a command would, when it is worth it.

Due after some hundred marks, or an hour, whichever comes first: what they leave behind makes a lake slow to
open, and large. At its start a run counts what it finds, so that runs that are short (`--once`)
come to it too. The request is carried out between epochs like any other (`maintain.maintenance`); an error of
it is a warning in the status, and never ends the run: the next hour tries again.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.errors import Transient
from headrace.lake.format import requests
from headrace.lake.format.requests import Request
from headrace.lake.log.marks import Marks
from headrace.pipeline.commands.serve import at_once
from headrace.pipeline.state.owner import Owner, Warner

EVERY_MARKS = 500
EVERY_SECONDS = 3600.0
KIND = "maintain"
WARNING = "MAINTENANCE_FAILED"


class UpkeepRun(Owner, Protocol):
    """A run, as far as its upkeep needs it."""

    @property
    def reporter(self) -> Warner: ...


@dataclass(slots=True)
class Upkeep:
    """The amount that has come together since the lake was last maintained."""

    since: float = field(default_factory=time.monotonic)
    epoch: int | None = None  # the mark's, at the last time, as far as is known
    request: Request | None = None

    def turn(self, run: UpkeepRun) -> None:
        """Once a turn of the loop."""
        if run.place.lake.maintain == "off":
            return
        if self.request is not None:
            self._look(run, self.request)
        elif self.due(run):
            self.request = requests.ask(run.place.store, run.ledger.name, KIND, {"auto": True})

    def due(self, run: UpkeepRun) -> bool:
        """Tell whether it is worth it by now."""
        if self.epoch is None:
            found = len(Marks(run.place.store, run.ledger.name).index().blocks)
            self.epoch = run.ledger.mark.epoch - found
        marks = run.ledger.mark.epoch - self.epoch
        return marks >= EVERY_MARKS or (marks > 1 and time.monotonic() - self.since >= EVERY_SECONDS)

    def finish(self, run: UpkeepRun) -> None:
        """At the end of a run that had not the time for it."""
        if run.place.lake.maintain == "off" or not self.due(run):
            return
        try:
            at_once(run, KIND, {"auto": True})
        except Transient as error:
            if run.ledger.is_incomplete:
                raise
            self._warn(run, error.code)
        self._again(run)

    def _look(self, run: UpkeepRun, request: Request) -> None:
        answer = requests.answer_to(run.place.store, run.ledger.name, request)
        if answer is None:
            return
        requests.forget(run.place.store, run.ledger.name, request)
        if "error" in answer:
            self._warn(run, answer["error"]["code"])
        else:
            run.reporter.clear(WARNING)
        self._again(run)

    def _warn(self, run: UpkeepRun, code: str) -> None:
        run.reporter.warn(WARNING, f"the lake could not be maintained: {code}")

    def _again(self, run: UpkeepRun) -> None:
        self.request, self.epoch, self.since = None, run.ledger.mark.epoch, time.monotonic()
