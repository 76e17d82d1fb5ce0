"""The errors of a source that the pipeline reacts to by their class. They load no Arrow."""

from __future__ import annotations

from headrace.core.errors import Transient


class TableBusy(Transient):
    """One table cannot be read now. It is tried again, and no other table waits for it."""


class TableDenied(TableBusy):
    """One table cannot be read until a person grants a privilege. A run that catches up leaves it out."""


class StepTooLong(TableBusy):
    """The walk along a table's key, over so many rows, took more than its time."""


class MomentMissed(Transient):
    """A reader was not there when the moment was taken. Try again; nothing else waits for it."""


class TableMissed(TableBusy, MomentMissed):
    """No reader that sees the moment is left for one table."""


MISSED_SECONDS = (0.5, 1.0, 2.0, 4.0)  # before a moment that was missed is tried again
