"""The beginning of a stream: the queue, the tables' triggers, and the first tick behind them.

    the queue ─► triggers, committed ─► a tick N, and we as its reader ─► the stream begins behind N

Making a trigger waits for those who write to its table: of every later transaction all changes are captured.
What committed before N lies before the start, and is in every snapshot that is taken from here on. The reader
is written down with the tick, so that nobody lets go what lies behind it.

Where the triggers were there before, nobody was waited for. Rows of a table with types of users that a writer
has printed by what a type was are to lie before N: such writers are let end (`copy.plan`). What is done to
a type later, by the time the tables are defined, is told by `capture.define`.

After a lost position the queue may be another one, or have been set back: then ticks count from a smaller
number on. In the life that begins there, the base of all times is larger.
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
    """See that the tables are captured, then that there is a tick behind that."""
    proof.refuse_standby(identity)
    was_there = _is_there(connection, upstream)
    try:
        queue = ensure_queue(connection, upstream.objects)
        with proof.telling_loss(connection, upstream):
            tick = _begin(connection, upstream, order, waiting)
    except BaseException:
        if order.undo:
            with suppress(
                HeadraceError
            ):  # what remains is named by `headrace check`, and used by the next run
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
    """Have the tables captured; a tick behind that, of which we are a reader."""
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
    """Tell whether the queue is there by now: one that somebody else made is not ours to take away."""
    objects = upstream.objects
    return find_queue(connection, objects, read_schema(connection, objects)) is not None


def _goes_on(connection: Session, upstream: QueueUpstream, reached: Position) -> bool:
    """Tell whether this is the life of the queue in which that was reached."""
    if not reached.text:
        return True
    place = TickPlace.parse(reached.text)
    found = ticks.find(connection, upstream.objects, place.tick)
    return found is not None and found.nonce == place.nonce


def leave(connection: Session, upstream: QueueUpstream) -> None:
    """Let go what the queue holds for us."""
    with suppress(HeadraceError):  # where the queue is gone there is nothing to let go
        readers.leave(connection, upstream)
