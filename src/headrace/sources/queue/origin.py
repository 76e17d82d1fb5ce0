"""The beginning of a stream: the queue, the tables' triggers, and the first tick behind them.

    the queue ─► triggers, committed ─► a tick N, and we as its reader ─► the stream begins behind N

Making a trigger waits for the transactions that write its table, so all changes of every later transaction
are captured. A commit before N lies before the start, and every later snapshot shows it. The reader is
recorded with the tick, so nothing behind it is deleted.

If the triggers were there before, they waited for no writer. In a table with user-defined types, a writer may
have printed rows by an older definition of a type. Those rows must lie before N, so we wait until such
writers end (`copy.plan`). `capture.define` detects later changes of a type, until the tables are defined.

After a lost position the queue may be another one, or may have been set back: then ticks count from a smaller
number. The life that begins there has a larger base for all times.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from headrace.core.errors import HeadraceError
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.sources.contract.errors import TableBusy
from headrace.sources.contract.mirror import StreamOrder, StreamOrigin
from headrace.sources.contract.values import Waiting
from headrace.sources.postgres.session.identity import PostgresIdentity
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import proof, readers
from headrace.sources.queue import tick as ticks
from headrace.sources.queue.capture import capture
from headrace.sources.queue.catalog.definitions import entry_of
from headrace.sources.queue.copy.plan import await_ends, printing
from headrace.sources.queue.creation import ensure_queue, find_queue, read_schema
from headrace.sources.queue.position import TickPlace
from headrace.sources.queue.removal import withdraw
from headrace.sources.queue.session.identity import lasting_part
from headrace.sources.queue.tick import Tick
from headrace.sources.queue.upstream import QueueUpstream


def establish(
    connection: Session,
    identity: PostgresIdentity,
    upstream: QueueUpstream,
    order: StreamOrder,
    waiting: Waiting,
) -> StreamOrigin:
    """Capture the tables, then take a tick behind that."""
    proof.refuse_standby(identity)
    was_there = _is_there(connection, upstream)
    try:
        queue = ensure_queue(connection, upstream.objects)
        with proof.translate_missing_queue(connection, upstream):
            tick = _begin(connection, upstream, order, waiting)
    except BaseException:
        if order.undo:
            with suppress(
                HeadraceError
            ):  # `headrace check` names objects that remain, and the next run uses them
                withdraw(connection, upstream, queue=not was_there)
        raise
    upstream = replace(upstream, incarnation=queue.incarnation)
    parted = order.received_until is not None and not _goes_on(connection, upstream, order.received_until)
    if order.received_until is not None and parted:
        upstream = replace(upstream, base=upstream.log.behind(order.received_until, tick.place).base)
    start = tick.position(upstream.log)
    return StreamOrigin(
        lasting_part(identity),
        to_record(upstream),
        start,
        fresh=True,
        begun_at=tick.taken_at,
        another_life=parted,
    )


def _begin(connection: Session, upstream: QueueUpstream, order: StreamOrder, waiting: Waiting) -> Tick:
    """Capture the tables; returns a tick behind that, with us registered as its reader."""
    captured = capture(connection, upstream, order.names, waiting)
    for error in captured.errors.values():
        if isinstance(error, TableBusy):
            raise error
    tables = [entry_of(table.details) for table in captured.defs.values()]
    await_ends(connection, printing(connection, tables), waiting)
    with ticks.taking(connection, upstream.objects) as tick:
        readers.register(connection, upstream, tick)
    return tick


def _is_there(connection: Session, upstream: QueueUpstream) -> bool:
    """Tell whether the queue exists already: then we must not remove it after a failure."""
    objects = upstream.objects
    return find_queue(connection, objects, read_schema(connection, objects)) is not None


def _goes_on(connection: Session, upstream: QueueUpstream, reached: Position) -> bool:
    """Tell whether this is the life of the queue in which the position was reached."""
    if not reached.text:
        return True
    place = TickPlace.parse(reached.text)
    found = ticks.find(connection, upstream.objects, place.tick)
    return found is not None and found.nonce == place.nonce


def leave(connection: Session, upstream: QueueUpstream) -> None:
    """Release what the queue keeps for us."""
    with suppress(HeadraceError):  # if the queue is gone, there is nothing to release
        readers.leave(connection, upstream)
