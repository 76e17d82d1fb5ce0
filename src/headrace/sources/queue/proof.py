"""The proof that a queue goes on where it was left: it is the same, and has the tick that was reached.

    incarnation     the queue was not dropped and made again
    tick, nonce     this server has our newest tick. The tick's commit lies in the log behind all that its
                    snapshot shows, so that is there too, and our lake is a prefix of this history
    xids            go on from the tick's: a dump that was loaded elsewhere has the rows, but not the numbers
    reader          nobody deleted what we have not read

So the timeline does not matter: a promoted standby goes on if it has our newest tick. A server that lacks it,
or that was set back to before it, has another history: `PositionLost`.

A stream proves this again after each batch (`prove_still`), before it passes the batch's tick on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.position import Position
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue import readers, trust
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.creation import find_queue, read_schema, refuse_version
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.statements import wholeness
from headrace.sources.queue.tick import RECONCILE, QueueLost, Tick
from headrace.sources.queue.upstream import VERSION, Objects, QueueUpstream
from headrace.sources.shared.refusals import TableGone


def confirm(
    connection: Session, identity: PostgresIdentity, upstream: QueueUpstream, frontier: Position
) -> Tick:
    """Find the tick that was reached; raise where the stream does not go on from there."""
    refuse_standby(identity)
    with translate_missing_queue(connection, upstream):
        error = remade(connection, upstream)
        if error is not None:
            raise error
        if not readers.is_registered(connection, upstream):
            raise ticks.reader_gone(upstream.objects, upstream.lake)
        return _reached_tick(connection, upstream.objects, frontier)


_SAME = """
SELECT q.incarnation::text, q.version, {whole},
       EXISTS (SELECT FROM {reader} r WHERE r.queue = %(queue)s AND r.lake = %(lake)s),
       EXISTS (SELECT FROM {tick} t WHERE t.queue = %(queue)s AND t.tick = %(tick)s
                  AND t.nonce::text = %(nonce)s)
  FROM (SELECT) one LEFT JOIN {queue} q ON q.name = %(queue)s
"""


def prove_still(connection: Session, upstream: QueueUpstream, tick: Tick) -> None:
    """Raise unless this is still the queue that holds everything behind a tick for this lake.

    Called after a batch, it proves that nothing of the batch was gone when it was read.
    """
    objects = upstream.objects
    statement = _SAME.format(
        queue=objects.queue, reader=objects.reader, tick=objects.tick, whole=wholeness(objects)
    )
    parameters = {
        "queue": upstream.queue,
        "lake": upstream.lake,
        "tick": tick.number,
        "nonce": tick.nonce,
    }
    with translate_missing_queue(connection, upstream):
        rows = query(connection, statement.encode(), parameters, prepare=True)
    [(incarnation, version, whole, registered, known)] = rows
    if upstream.incarnation not in ("", incarnation) or version != VERSION or not whole:
        raise _lost_error(connection, upstream)
    if not registered:
        raise ticks.reader_gone(objects, upstream.lake)
    if not known:
        raise ticks.tick_unknown(objects, tick.number)


@contextmanager
def translate_missing_queue(connection: Session, upstream: QueueUpstream) -> Iterator[None]:
    """Turn the server's error of a missing table of the queue into an error of the queue.

    If nothing of the queue is gone, the server's error is about another table, and stays.
    """
    try:
        yield
    except TableGone as error:
        raise remade(connection, upstream) or error from None


def _lost_error(connection: Session, upstream: QueueUpstream) -> QueueLost:
    error = remade(connection, upstream)
    return error or ticks.remade(upstream.objects, "a table of it was dropped, or made again")


def remade(connection: Session, upstream: QueueUpstream) -> QueueLost | None:
    """The error if the queue, or one of its event tables, is not the one that was read.

    Raises if the queue has another version than ours.
    """
    objects = upstream.objects
    queue = find_queue(connection, objects, read_schema(connection, objects))
    if queue is None:
        return ticks.gone_error(objects)
    refuse_version(queue, objects)
    if upstream.incarnation and queue.incarnation != upstream.incarnation:
        return ticks.remade(
            objects, "it was dropped and made again, came from elsewhere, or lost events by somebody's hand"
        )
    if not queue.whole:
        return ticks.remade(
            objects, "a table of its events was dropped, renamed or made again, or is guarded no more"
        )
    return None


_WHOLE = """
SELECT q.incarnation::text, q.version, {whole} FROM {queue} q WHERE q.name = %(queue)s
"""


def prove_same(connection: Session, upstream: QueueUpstream) -> None:
    """Raise unless the queue is trusted, and is the one that was read: a short test before `remade`."""
    trust.prove(connection, upstream.objects)
    statement = _WHOLE.format(queue=upstream.objects.queue, whole=wholeness(upstream.objects))
    rows = query(connection, statement.encode(), {"queue": upstream.queue}, prepare=True)
    [(incarnation, version, whole)] = rows or [(None, None, False)]
    if not whole or version != VERSION or upstream.incarnation not in ("", incarnation):
        raise _lost_error(connection, upstream)


def refuse_standby(identity: PostgresIdentity) -> None:
    """Refuse a standby: a tick is a row, so a server that can't write one has no stream."""
    if identity.standby:
        raise standby()


def standby() -> Misconfigured:
    """The error of a server where nothing can be written."""
    return Misconfigured(
        "QUEUE_STANDBY",
        "the server is a standby, where no tick can be taken",
        hint="give the address of the primary",
    )


def _reached_tick(connection: Session, objects: Objects, reached: Position) -> Tick:
    place = TickPlace.parse(reached.text)
    found = ticks.find(connection, objects, place.tick)
    if found is None or found.nonce != place.nonce:
        raise ticks.tick_unknown(objects, place.tick)
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


def history_changed(sent_times: Sequence[int], again: Sequence[int]) -> HeadraceError:
    """The error of a queue that holds other events in ticks than it did before."""
    return QueueLost(
        "QUEUE_HISTORY_CHANGED",
        "the queue does not hold what it held before",
        detail=f"{len(sent_times)} ticks were received once, {len(again)} others in their place",
        hint=RECONCILE,
    )
