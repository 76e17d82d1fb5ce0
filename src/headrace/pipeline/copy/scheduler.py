"""The running copies: one at the beginning, and one more for each group of tables that come later.

    begin    copies a group of tables under its own snapshot: no table waits for a copy that takes hours
    events   returns the parts that they brought, for the `loop`
    forget   drops the copy of a table that left; the other tables of that copy go on

A table that can't be read just now (a session has locked it, a TRUNCATE overtook its snapshot, a privilege
was revoked) leaves its copy and waits for a moment, longer each time. Then no copy has it, and the loop
begins another one for it.

The copies share the source's connections: at most `snapshot_connections` ranges are read at once over all
copies. They also share the progress of each table.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, Transient
from headrace.core.names import TableName
from headrace.pipeline.copy.context import (
    CopiedTable,
    CopyPostponed,
    CopyProgress,
    CopyRefused,
    CopyThread,
    Event,
    Portion,
    Room,
)
from headrace.sources.contract.errors import TableDenied

AGAIN_SECONDS, AGAIN_MOST_SECONDS = 1.0, 10.0
COPIES_AT_ONCE = 4  # each has a connection that holds its snapshot, and may have a slot of its own


@dataclass(frozen=True, slots=True)
class _Later:
    """The reason to leave a table alone, and until when."""

    error: Transient
    until: float


class CopyScheduler:
    """The copies of one attempt; only its loop may use them."""

    def __init__(self, connections: int) -> None:
        self.room = Room(connections)
        self._copies: list[CopyThread] = []
        self._given_up: list[CopyThread] = []
        self._postponed: dict[TableName, _Later] = {}
        # Of tables that were postponed and not copied since: the pause, and when that began.
        self._pauses: dict[TableName, float] = {}
        self._since: dict[TableName, float] = {}

    def begin(self, copying: CopyThread) -> None:
        for name in copying.names:
            self._postponed.pop(name, None)
        self._copies.append(copying)
        copying.start()

    @property
    def names(self) -> frozenset[TableName]:
        """Return the tables of running copies, and those that wait for another copy later."""
        self._copies = [copying for copying in self._copies if not copying.over]
        now = time.monotonic()
        later = {name for name, each in self._postponed.items() if now < each.until}
        return frozenset(later.union(*(copying.names for copying in self._copies)))

    @property
    def full(self) -> bool:
        """Tell whether the source can bear no further copy now: then tables wait, and are copied together."""
        copies = [copying for copying in self._copies + self._given_up if copying.reads_source]
        return sum(not copying.site.has_ended.is_set() for copying in copies) >= COPIES_AT_ONCE

    @property
    def over(self) -> bool:
        """Tell whether nothing more will come."""
        return all(copying.over for copying in self._copies)

    @property
    def progress(self) -> Mapping[TableName, CopyProgress]:
        return dict(self.room.progress)  # at once: the threads of copies add to it

    @property
    def waits_for(self) -> list[Transient]:
        """Return the reasons why copies wait for their snapshot, and why tables can't be read."""
        waiting = [copying.site.waits_for for copying in self._copies]
        later = list(self._postponed.values())  # at once: it is the reporter's thread that asks
        return [each for each in waiting if each is not None] + [each.error for each in later]

    @property
    def withheld(self) -> Mapping[TableName, HeadraceError]:
        """Return the tables that can't be read until a person grants us a privilege."""
        return {
            name: each.error for name, each in self._postponed.items() if isinstance(each.error, TableDenied)
        }

    def busy(self, seconds: float) -> Mapping[TableName, HeadraceError]:
        """Return the tables that could not be read for so long, for whatever reasons."""
        before = time.monotonic() - seconds
        return {name: each.error for name, each in self._postponed.items() if self._since[name] <= before}

    def events(self) -> Iterator[Event]:
        """Yield the events so far; a caller that raises meanwhile loses nothing that an attempt needs."""
        for copying in self._copies:
            while not copying.site.events.empty():
                event = copying.site.events.get()
                if isinstance(event, CopiedTable | Portion | CopyRefused | CopyPostponed):
                    if event.name not in copying.names:
                        continue  # it left, and may be copied as it is by now
                    if not isinstance(event, Portion):
                        copying.names -= {event.name}
                if isinstance(event, CopyPostponed):
                    pause = self._pauses.get(event.name, AGAIN_SECONDS)
                    self._pauses[event.name] = min(2 * pause, AGAIN_MOST_SECONDS)
                    now = time.monotonic()
                    self._since.setdefault(event.name, now)
                    self._postponed[event.name] = _Later(event.error, now + pause)
                    continue
                if isinstance(event, CopiedTable | Portion | CopyRefused):
                    self._postponed.pop(event.name, None)
                    self._pauses.pop(event.name, None)
                    self._since.pop(event.name, None)
                yield event

    def forget(self, names: Collection[TableName]) -> None:
        """Give up the copies of these tables; nothing of them comes any more."""
        for copying in [copying for copying in self._copies if not copying.names.isdisjoint(names)]:
            copying.forget(names)
            if not copying.names:
                self._given_up.append(copying)
                self._copies.remove(copying)
        for name in names:
            self.room.progress.pop(name, None)
            self._postponed.pop(name, None)
            self._pauses.pop(name, None)
            self._since.pop(name, None)

    def stop(self) -> None:
        """Give up what is under way; tables that are not complete are copied again by the next attempt."""
        for copying in self._copies + self._given_up:
            copying.stop()
