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

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.position import Position
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import loss, readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.creation import is_whole, read_queue, read_schema
from headrace.sources.queue.loss import RECONCILE, QueueLost
from headrace.sources.queue.objects import Objects, Upstream
from headrace.sources.queue.position import Place
from headrace.sources.queue.tick import Tick


def confirm(connection: Session, identity: Identity, upstream: Upstream, reached: Position) -> Tick:
    """Find the tick that was reached; raise where the stream does not go on from there."""
    refuse_standby(identity)
    objects = upstream.objects
    schema = read_schema(connection, objects)
    queue = read_queue(connection, objects) if schema.has_tables else None
    if queue is None:
        raise loss.gone(objects)
    if upstream.incarnation and queue.incarnation != upstream.incarnation:
        raise loss.remade(objects, "it was dropped and made again, or events of it were removed by hand")
    if not is_whole(connection, objects, queue):
        raise loss.remade(objects, "a table of its events was dropped, or made again")
    if not readers.is_registered(connection, upstream):
        raise loss.reader_gone(objects, upstream.lake)
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
        raise loss.tick_unknown(objects, place.tick)
    [(ahead,)] = query(
        connection,
        "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::int8",
    )
    if ahead < found.snapshot.xmax:
        raise QueueLost(
            "QUEUE_XIDS_BEHIND",
            f'the queue "{objects.name}" was loaded into a server that it is not of',
            detail=f"tick {place.tick} knows transactions up to {found.snapshot.xmax}, the server {ahead}",
            hint=RECONCILE,
        )
    return found


def history_changed(sent: Sequence[int], again: Sequence[int]) -> HeadraceError:
    """The error of a queue that holds other events in ticks than it did before."""
    return QueueLost(
        "QUEUE_HISTORY_CHANGED",
        "the queue does not hold what it held before",
        detail=f"{len(sent)} ticks were received once, {len(again)} others in their place",
        hint=RECONCILE,
    )
