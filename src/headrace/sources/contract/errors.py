"""Errors of a source that those above react to, each by its class. They load no Arrow."""

from __future__ import annotations

from headrace.core.errors import Transient


class TableBusy(Transient):
    """One table cannot be read just now: it is tried again, and no other table waits for it."""


class TableDenied(TableBusy):
    """One table cannot be read until a person gives us a right: a run that catches up goes on without."""


class StepTooLong(TableBusy):
    """The walk along a table's key, over so many rows, took more than its time."""


class MomentMissed(Transient):
    """A reader was not there when a moment was taken: it is tried again, and nothing else waits for it."""


class TableMissed(TableBusy, MomentMissed):
    """One table has no reader any more that sees the moment."""


MISSED_SECONDS = (0.5, 1.0, 2.0, 4.0)  # before a moment that was missed is tried again
