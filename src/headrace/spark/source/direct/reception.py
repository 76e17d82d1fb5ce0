"""The stream of a source, received and cut into batches: one connection, one receiver, one spool.

    receiver (a process) ─► spool ─► cut ─► batch: bytes, record, both durable ─► offered

The spool is this machine's and worth nothing: each start erases it, and the source sends again what was not
acknowledged. The receiver compares that with the newest commits of the last batch, so a server that was set
back or replaced is refused with the source's own code.

A receiver that ends with a transient error is started again, for `RETRY_SECONDS`; then the query ends with
that error, and goes on where it stands when it is started again.

The stream ends at the transaction before what it cannot say (`refusals`); what came before that is offered
first. Of what the stream does not show the catalog tells (`table_watch`).
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from headrace.core.errors import HeadraceError, Transient
from headrace.core.failpoint import failpoint
from headrace.core.position import Position
from headrace.ingest.last_commits import LastCommits
from headrace.ingest.supervisor import Feed, Receiver
from headrace.sources import registry
from headrace.sources.contract.copying import Reader
from headrace.sources.contract.mirror import Address, Connection, Mirror, StreamOrigin
from headrace.sources.contract.source import Source
from headrace.sources.contract.values import Json, TableDef
from headrace.spark.source.direct.cutting import noting_rows, pieces, store_pieces, within
from headrace.spark.source.direct.refusals import BatchCheck
from headrace.spark.source.direct.rows import DirectPlan
from headrace.spark.source.direct.state import STREAM, BatchRecord, Beginning, StateFolder, StateRecord
from headrace.spark.source.direct.table_watch import TableWatch
from headrace.spool.cut_places import CutPlaces
from headrace.spool.layout import Records, erase
from headrace.spool.places import Places
from headrace.spool.private import private_folder
from headrace.spool.reader import SpoolReader

SPOOL_BYTES = 1 << 30  # of the driver's disk: a query that stands still leaves the rest at the source
MOST_TRANSACTIONS = 200_000
RETRY_SECONDS = 60.0
PAUSE_SECONDS = 0.5  # before a receiver is started again
LOOK_SECONDS = 1.0  # between two looks at the owner and at the source's tables
HEALTH_SECONDS = 10.0
IDLE_SECONDS = 60.0  # without a transaction: then an empty batch lets the source forget its log

_log = logging.getLogger("headrace")


@dataclass(frozen=True, slots=True)
class StreamPlace:
    """A place in a stream, behind a batch, and what is known there.

    The stream goes on at `end`; of what comes again, transactions before the time `until` were offered.
    """

    batch: int
    end: Position
    until: int
    last: LastCommits
    filled_tables: frozenset[int]  # the tables that may have had rows, by number

    @classmethod
    def behind(cls, batch: BatchRecord) -> StreamPlace:
        return cls(batch.number, batch.end, batch.until, batch.last, frozenset(batch.filled_tables))


class SourceLink:
    """The connection to the source, made again when it is lost, and the mirror that is bound to it."""

    def __init__(self, source: Source, address: Address, planned: StateRecord) -> None:
        self.source = source
        self._address = address
        self._upstream = planned.upstream
        self._identity: Json | None = None
        self._made: Connection | None = None

    @property
    def connection(self) -> Connection:
        if self._made is None or self._made.is_closed:
            self._made = self.source.connect(self._address, role="stream")
        return self._made

    @property
    def mirror(self) -> Mirror:
        """The mirror; raises unless the server is the one that the stream began at."""
        return self.connection.mirror(self._upstream, self._identity)

    def bind(self, beginning: Beginning | StreamOrigin) -> None:
        """Bind to the objects of a stream, and to its server."""
        self._upstream, self._identity = beginning.upstream, beginning.identity

    def feed(self, folder: Path, tables: Sequence[TableDef], plan: DirectPlan, kind: str) -> Feed:
        """The orders of a receiver of these tables."""
        picking, upstream = registry.stream_source(kind).picking, self._upstream
        if picking is not None:
            upstream = picking(upstream, [table.name for table in tables], plan.options)
        address, identity = self.connection.address, self.connection.identity
        return Feed(kind, address, identity, upstream, folder, limit_bytes=SPOOL_BYTES)

    def reader(self, ticket: Json) -> Reader:
        """A reader of a snapshot, with a connection of its own; any thread may ask for one."""
        made = self._made
        assert made is not None  # the ticket is from it
        return self.source.reader(made.address, made.identity, ticket, role="copy")

    def exactly_at(self, kind: str) -> Callable[[int], Position | None]:
        """The position at a time, where the source can tell."""
        at = registry.stream_source(kind).at
        return _nowhere if at is None else partial(at, self._upstream)


class Reception:
    """The stream behind a place. One thread at a time may use it; nothing is lost with it."""

    def __init__(
        self,
        plan: DirectPlan,
        state: StateFolder,
        link: SourceLink,
        tables: Sequence[TableDef],
        place: StreamPlace,
    ) -> None:
        self._plan, self._state, self.link, self.place = plan, state, link, place
        self._records = {str(table.number): table for table in tables}
        self.reference = link.mirror.check(self._records).reference
        self._decoder = link.source.decoder(self.reference)
        patterns = plan.tables if plan.columns is None else None
        self._watch = TableWatch(lambda: link.mirror, tables, self._decoder, patterns)
        self._folder = _spool_folder(state)
        kind = state.record.kind
        self._places = CutPlaces(Places(self._folder), link.exactly_at(kind))
        self._receiver = Receiver(link.feed(self._folder, tables, plan, kind))
        self._failing_since: float | None = None
        self._next_look = self._next_health = 0.0
        self._cut_at = time.monotonic()
        self.waits = False  # transactions are here that may not be offered yet
        self._start()

    @property
    def received_until(self) -> int:
        """The time up to which the stream is here, exclusively."""
        return self._spool.frontier() or 0

    def acknowledge(self, position: Position) -> None:
        """Let the source forget what lies before."""
        self._receiver.acknowledge(position)

    def require_unaltered(self) -> None:
        """Look at the tables once more, and raise what altered them: all that was asked for is offered."""
        with self._patience():
            self._watch.look()
        self._watch.require_unaltered()

    def abandon(self) -> None:
        """End the receiver at once, as the end of this process would."""
        self._receiver.kill()

    def cut(self, *, whole: bool = False) -> bool:
        """Cut the next batch out of what has come, and offer it; False if there is none.

        `whole`: only if as much has come as a batch may hold. Raises what ends the stream, once all before
        that was offered.
        """
        if whole:
            newest = self._spool.newest()
            if newest is None or int(newest["stop"]) - self._address < self._plan.max_bytes:
                return False
        self._look()
        until, chosen = self._next_transactions()
        count, refusal = self._fit(chosen)
        if refusal is not None and count == 0:
            raise refusal.adding(f"the stream is offered up to {self.place.end}")
        self.waits = len(chosen) > 0 and count == 0
        if self.waits:
            return False
        if count < len(chosen):
            until, chosen = int(chosen["end"][count - 1]), chosen[:count]
        end = self._end_at(until)
        if not len(chosen) and not self._is_overdue(end):
            self._watch.require_unaltered(until)
            self.listen()
            return False
        self._offer(chosen, end, until)
        return True

    def listen(self) -> bool:
        """Raise what the receiver ended with, or start it again after what may pass; is it streaming?"""
        with self._patience():
            if self._receiver.poll().streaming:
                self._failing_since = None
                return True
        return False

    # --- receiving --------------------------------------------------------------------------------

    def _start(self) -> None:
        """Receive from behind the last batch on."""
        erase(self._folder)
        self._receiver.feed = replace(self._receiver.feed, last=self.place.last)
        self._receiver.start(self.place.end)
        self._spool, self._address = SpoolReader(self._folder), 0
        if self._state.committed_batch:
            self._receiver.acknowledge(self._state.end_of(self._state.committed_batch))

    def _look(self) -> None:
        """See now and then whether the stream is still ours, and its tables still there."""
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + LOOK_SECONDS
        self._state.require_owner()
        with self._patience():
            self._watch.look()
            if now >= self._next_health:
                self._next_health = now + HEALTH_SECONDS
                health = self.link.mirror.health(self._plan.max_wal)
                if health.excess is not None:
                    raise health.excess

    @contextmanager
    def _patience(self) -> Iterator[None]:
        """Bear what may pass, for a while; then begin to receive again."""
        try:
            yield
        except Transient as error:
            now = time.monotonic()
            self._failing_since = self._failing_since or now
            if now - self._failing_since > RETRY_SECONDS:
                raise
            _log.warning("%s: %s; headrace tries again", error.code, error.primary)
            time.sleep(PAUSE_SECONDS)
            if not self._receiver.alive:
                self._start()

    # --- cutting ----------------------------------------------------------------------------------

    def _next_transactions(self) -> tuple[int, Records]:
        """The next transactions that fit into a batch, and how far the stream is here with them."""
        reached = self.received_until  # read first: what is read afterwards is complete up to here
        found = self._spool.transactions(self._address, MOST_TRANSACTIONS)
        new = found[found["time"] >= self.place.until]
        chosen = within(new, self._plan.max_bytes)
        if len(chosen) < len(new) or len(found) == MOST_TRANSACTIONS:
            reached = int(chosen["end"][-1]) if len(chosen) else self.place.until
        elif len(chosen):
            reached = max(reached, int(chosen["end"][-1]))
        if len(found) == MOST_TRANSACTIONS and not len(new):
            self._address = int(found["stop"][-1])
        return reached, chosen

    def _end_at(self, until: int) -> Position:
        """Find the last position that is not behind `until`: some sources name only a few."""
        found = self._places.within(self.place.end, until, None)
        return found if self.place.end < found and found.time <= until else self.place.end

    def _is_overdue(self, end: Position) -> bool:
        """Tell whether the source shall hear how far we are though no transaction came."""
        return end > self.place.end and time.monotonic() > self._cut_at + IDLE_SECONDS

    def _offer(self, chosen: Records, end: Position, until: int) -> None:
        number = self.place.batch + 1
        key = self._state.file(STREAM, number, "raw")
        filled = set(self.place.filled_tables)
        numbers = [table.number for table in self._records.values()]
        cut = noting_rows(pieces(self._spool, self._decoder, chosen), self._decoder, numbers, filled)
        slices = store_pieces(self._state.store, key, cut) if len(chosen) else ()
        failpoint("direct.batch.before")
        batch = BatchRecord(
            number=number,
            key=key,
            end=end,
            until=until,
            slices=slices,
            changes=int(chosen["changes"].sum()),
            last=self._last_commits(chosen, end),
            filled_tables=tuple(sorted(filled)),
        )
        self._state.offer(batch)
        failpoint("direct.batch.after")
        self.place = StreamPlace.behind(batch)
        self._cut_at = time.monotonic()
        if len(chosen):
            self._address = int(chosen["stop"][-1])
            self._spool.discard(self._address)

    def _last_commits(self, chosen: Records, end: Position) -> LastCommits:
        """The newest commits before `end`, complete from some time on."""
        place = self.place
        if end == place.end:
            return place.last
        known = place.last if place.until == place.end.time else LastCommits(place.until)
        return known.followed_by(chosen[chosen["time"] < end.time], self._decoder.transaction_id or _nobody)

    def _fit(self, chosen: Records) -> tuple[int, HeadraceError | None]:
        """Count the transactions that can be offered now, and say why the next one can't."""
        if not self._watch.is_due:
            return 0, None
        tables = {table.number: table for table in self._records.values()}
        typed = self._plan.columns is not None
        check = BatchCheck(self._spool, self._decoder, tables, self.place.filled_tables, typed)
        count, refusal = check.first(chosen)
        with self._patience():
            return self._watch.fit(chosen, count, refusal)
        return 0, None


def _spool_folder(state: StateFolder) -> Path:
    """A folder of this owner's own; those of earlier owners go."""
    place = private_folder(state.record.spool)
    for old in place.iterdir():
        shutil.rmtree(old, ignore_errors=True)
    folder = place / str(state.owner)
    folder.mkdir()
    return folder


def _nowhere(time: int) -> Position | None:
    """The position at a time, of a source of which only the stream tells it."""
    return None


def _nobody(number: int) -> int:
    """The id of a transaction, of a source whose ids are no numbers."""
    return 0
