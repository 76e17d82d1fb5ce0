"""The durable epoch: up to which mark a source survives a power cut. It is brought about here, and noted.

    sync_all, once        for everything that an earlier owner left, whose names nobody knows
    sync by name          the plan, data files, lines of logs, the mark: reports errors of the disk
    the note              the last epoch for which that is done, written down in the lake:

    _headrace/durable/<source>.json
        {"epoch": 41}                            all up to mark 41 is on the disk
        {"epoch": 41, "until": 44, "id": ...}    42 to 44 are being taken back

`Syncing` is part of `commit.EpochLog`; the acknowledging thread calls it. Only after it has returned may a
caller acknowledge the epoch, or delete a file that an earlier epoch still needed. The note is written after
each sync and before the acknowledgement, durably itself: so it is never ahead of the disk, and never behind
what was acknowledged. `lake.log.recovery` reads it when a source is taken over, and looks only at later
epochs. A file is deleted only when no epoch after its last use can be taken back.

A store whose writes are durable when they are answered needs none of it, and has no such file. A lake in a
directory that has marks and no such file is from before there was one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from headrace.core.errors import Misconfigured
from headrace.core.failpoint import failpoint
from headrace.core.records import on_disk, parse, to_record
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan, attempts


class DurableFiles(Protocol):
    """The part of a `Store` that is needed here."""

    @property
    def durable_at_once(self) -> bool: ...

    def put(self, key: str, data: bytes, /) -> None: ...

    def get(self, key: str) -> bytes | None: ...

    def sync(self, keys: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Durable:
    """All up to the mark of `epoch` is durable; with `until`, the epochs after it up to that one go."""

    epoch: int
    until: int | None = field(default=None, metadata=on_disk(sparse=True))
    # The id of the repair, which stands in its commits.
    id: str = field(default="", metadata=on_disk(sparse=True))


def read(files: DurableFiles, source: str) -> Durable | None:
    """Read the newest of these notes; None where there is none."""
    data = files.get(layout.durable_key(source))
    if data is None:
        return None
    return parse(Durable, data)


def write(files: DurableFiles, source: str, durable: Durable) -> None:
    """Write it down, durably."""
    if files.durable_at_once:
        return
    key = layout.durable_key(source)
    files.put(key, json.dumps(to_record(durable)).encode())
    files.sync([key])


# --- from the operating system to the disk --------------------------------------------------------


class SyncedFiles(DurableFiles, Protocol):
    """The part of a `Store` that is needed here."""

    def sync_all(self) -> None: ...


class Table(Protocol):
    """One Delta table."""

    def log_keys(self, version: int) -> list[str]:
        """The files of the log that hold this version."""


class MarkLog(Protocol):
    """The marks of the source."""

    def new_keys(self) -> list[str]:
        """The files that hold what was published since the last call."""


class Syncing:
    """The durable part of one source's epochs."""

    def __init__(
        self, source: str, files: SyncedFiles, marks: MarkLog, table: Callable[[str], Table]
    ) -> None:
        self._source = source
        self._files = files
        self._marks = marks
        self._table = table
        self._begun = 0  # the epoch of the newest mark when this began
        self._unknown = True  # there may be unsynced files whose names nobody knows
        self.durable = -1  # the last epoch that is known to be durable

    def begin(self, epoch: int) -> None:
        """Begin after a takeover; `epoch` is that of the source's newest mark."""
        known = read(self._files, self._source)
        self._begun, self.durable = epoch, -1 if known is None else known.epoch

    def forget(self) -> None:
        """Note that a file was written which no later call names."""
        self._unknown = True

    def sync(self, plan: Plan | None) -> None:
        """Make all that this plan and its mark rest on durable; without one, all up to the takeover's mark.

        Call it for every plan, in order, before acknowledging what the plan's mark holds. The first call
        after a takeover may take seconds on a busy machine: nobody but the acknowledgement waits for it.
        """
        failpoint("lake.sync.before")
        unknown, self._unknown = self._unknown, False
        try:
            self._sync(plan, unknown=unknown)
        except BaseException:
            self._unknown |= unknown
            raise
        failpoint("lake.sync.after")

    def _sync(self, plan: Plan | None, *, unknown: bool) -> None:
        last = max(self._begun, self.durable) if plan is None else plan.epoch
        plans = [] if plan is None else [plan]
        if unknown:
            self._files.sync_all()
            plans = [*self._not_durable(last), *plans]
        keys = [layout.plan_key(self._source, each.epoch) for each in plans]
        keys += self._marks.new_keys()
        keys += self._written_files(plans)
        self._files.sync(keys)
        if not self._files.durable_at_once:
            self._see_that_it_is_ours(last)
        write(self._files, self._source, Durable(last))
        self.durable = last

    def _see_that_it_is_ours(self, last: int) -> None:
        """A writer that was frozen here may wake when a successor is far ahead, or has taken this back."""
        known = read(self._files, self._source)
        if known is not None and (known.epoch > last or known.until is not None):
            raise fenced_error(self._source, f"it made epoch {known.epoch} durable, and we are at {last}")

    def _not_durable(self, last: int) -> Iterator[Plan]:
        """The plans up to this epoch that nobody knows to be durable."""
        first = self.durable + 1 if self.durable >= 0 else last
        for epoch in range(first, last + 1):
            yield from attempts(self._files, self._source, epoch)[-1:]

    def _written_files(self, plans: Iterable[Plan]) -> Iterator[str]:
        for step in (step for plan in plans for step in plan.steps):
            yield from self._table(step.path).log_keys(step.base + 1)
            yield from (f"{step.path}/{file.path}" for file in step.add)


class FencedOut(Misconfigured):
    """Another writer has the source."""

    codes = ("LAKE_FENCED",)


def fenced_error(source: str, detail: str) -> FencedOut:
    """The error of a writer whose source has become another's."""
    return FencedOut(
        "LAKE_FENCED",
        f'another writer has taken over source "{source}" of this lake',
        detail=detail,
        hint="stop this process: one run owns a source; headrace status shows the owner",
    )
