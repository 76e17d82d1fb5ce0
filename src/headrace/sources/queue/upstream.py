"""The proof that a queue goes on where it was left: it is the same, and has the tick that was reached.

    incarnation     the queue was not dropped and made again
    tick, nonce     whatever server this is, it has the newest tick of ours: its commit is in the log behind
                    all that its snapshot shows, so that is there too, and what we hold is a prefix of it
    xids            go on behind the tick's: a dump that was loaded elsewhere has the rows, not the numbers
    reader          nobody let go what we have not read

So the timeline does not matter: a standby that was promoted goes on if it has our newest tick. One that lacks
it, or a server that was set back to before it, has another history: `PositionLost`.

Called by the session before anything is taken up, and by every stream that is opened.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.core.errors import Definite, HeadraceError, Misconfigured, PositionLost
from headrace.core.position import Position
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.creation import is_whole, read_queue, read_schema
from headrace.sources.queue.objects import Objects, Upstream
from headrace.sources.queue.position import Place
from headrace.sources.queue.tick import Tick

_RECONCILE = "headrace run --reconcile copies its tables anew and writes the difference"


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


def confirm(connection: Session, identity: Identity, upstream: Upstream, reached: Position) -> Tick:
    """Find the tick that was reached; raise where the stream does not go on from there."""
    refuse_standby(identity)
    objects = upstream.objects
    schema = read_schema(connection, objects)
    queue = read_queue(connection, objects) if schema.has_tables else None
    if queue is None:
        raise QueueLost(
            "QUEUE_GONE",
            f'there is no queue "{upstream.queue}" in the schema "{upstream.schema}"',
            hint=_RECONCILE,
        )
    if upstream.incarnation and queue.incarnation != upstream.incarnation:
        raise QueueLost(
            "QUEUE_REMADE", f'the queue "{upstream.queue}" was dropped and made again', hint=_RECONCILE
        )
    if not is_whole(connection, objects, queue):
        raise QueueLost(
            "QUEUE_REMADE",
            f'the queue "{upstream.queue}" is not the one that was read',
            detail="a table of its events was dropped, or made again: events of it may be missing",
            hint=_RECONCILE,
        )
    if not readers.is_registered(connection, upstream):
        raise QueueLost(
            "QUEUE_READER_GONE",
            f'the queue "{upstream.queue}" does not know this lake any more',
            detail=f'reader "{upstream.lake}" was dropped: what it had not read may be gone',
            hint=_RECONCILE,
        )
    return _reached(connection, objects, reached)


def refuse_standby(identity: Identity) -> None:
    """A tick is a row: where none can be written there is no stream."""
    if identity.standby:
        raise standby()


def standby() -> Misconfigured:
    """The error of a server where nothing can be written."""
    return Misconfigured(
        "QUEUE_STANDBY",
        "the server is a standby, where no tick can be taken",
        hint="give the address of the primary",
    )


def _reached(connection: Session, objects: Objects, reached: Position) -> Tick:
    place = Place.parse(reached.text)
    found = ticks.find(connection, objects, place.tick)
    if found is None or found.nonce != place.nonce:
        raise QueueLost(
            "QUEUE_TICK_UNKNOWN",
            f'the queue "{objects.name}" does not have what was reached: tick {place.tick}',
            detail="the server was set back, restored, or is another one",
            hint=_RECONCILE,
        )
    [(ahead,)] = query(
        connection,
        "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::int8",
    )
    if ahead < found.snapshot.xmax:
        raise QueueLost(
            "QUEUE_XIDS_BEHIND",
            f'the queue "{objects.name}" was loaded into a server that it is not of',
            detail=f"tick {place.tick} knows transactions up to {found.snapshot.xmax}, the server {ahead}",
            hint=_RECONCILE,
        )
    return found


def history_changed(sent: Sequence[int], again: Sequence[int]) -> HeadraceError:
    """The error of a queue that holds other events in ticks than it did before."""
    return QueueLost(
        "QUEUE_HISTORY_CHANGED",
        "the queue does not hold what it held before",
        detail=f"{len(sent)} ticks were received once, {len(again)} others in their place",
        hint=_RECONCILE,
    )
