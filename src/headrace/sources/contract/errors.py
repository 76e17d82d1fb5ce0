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
    """A moment was taken with none of its readers there: it is tried again, and nothing else waits for it."""
