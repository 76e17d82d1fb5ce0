"""The loss of a queue: what was reached is none of its places any more. A reconcile goes on from there.

Raised by whoever proves that the queue is the one that was read: the session before anything is taken up
(`upstream`), streams behind each batch, the look at the tables (`ddl.schema_check`).
"""

from __future__ import annotations

from headrace.core.errors import Definite, PositionLost
from headrace.sources.queue.objects import Objects

RECONCILE = "headrace run --reconcile copies its tables anew and writes the difference"


class QueueLost(Definite, PositionLost):
    """The place that was reached is none of this queue's."""

    codes = (
        "QUEUE_GONE",
        "QUEUE_REMADE",
        "QUEUE_TICK_UNKNOWN",
        "QUEUE_XIDS_BEHIND",
        "QUEUE_READER_GONE",
        "QUEUE_HISTORY_CHANGED",
    )


def gone_error(objects: Objects) -> QueueLost:
    """The error of a queue that is not there."""
    return QueueLost(
        "QUEUE_GONE",
        f'there is no queue "{objects.name}" in the schema "{objects.schema}"',
        detail="it is gone: changes that were made meanwhile are in no batch",
        hint=RECONCILE,
    )


def remade(objects: Objects, detail: str) -> QueueLost:
    """The error of a queue that is another one, or lost events by somebody's hand."""
    return QueueLost(
        "QUEUE_REMADE",
        f'the queue "{objects.name}" in the schema "{objects.schema}" is not the one that was read',
        detail=f"{detail}: changes that were made meanwhile may be in no batch",
        hint=RECONCILE,
    )


def reader_gone(objects: Objects, lake: str) -> QueueLost:
    """The error of a queue that holds nothing for this lake any more."""
    return QueueLost(
        "QUEUE_READER_GONE",
        f'the queue "{objects.name}" does not know this lake any more',
        detail=f'reader "{lake}" was dropped: what it had not read may be gone',
        hint=RECONCILE,
    )


def tick_unknown(objects: Objects, number: int) -> QueueLost:
    """The error of a queue without the tick that was reached."""
    return QueueLost(
        "QUEUE_TICK_UNKNOWN",
        f'the queue "{objects.name}" does not have what was reached: tick {number}',
        detail="the server was set back, restored, or is another one; or its ticks were removed by hand",
        hint=RECONCILE,
    )
