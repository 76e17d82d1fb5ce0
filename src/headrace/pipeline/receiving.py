"""The stream of an attempt: its receiver, its spool, and the work on what it brings.

    tables of the ledger ─► picking ─► receiver ─► spool ─► runner, with the work ahead
                              ▲
                              └── turn: other tables are to be picked, so all this begins again

A receiver may pick our tables out of the stream of a whole server. The stream that it received before a table
was added lacks that table. So the receiver begins again at the newest mark. The copy of the table holds at
least what the lake holds by then, and all of the stream after it has the table's changes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Protocol

from headrace.ingest.supervisor import Feed, Receiver
from headrace.pipeline.state.epoch import Epoch
from headrace.pipeline.state.ledger import Ledger
from headrace.pipeline.state.owner import RunContext
from headrace.pipeline.stream.eager import AheadContext, EagerDecoding
from headrace.pipeline.stream.epoch import EpochRunner
from headrace.pipeline.tasks.table_task import REWRITE, TableTask
from headrace.sources import registry
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.mirror import Connection
from headrace.sources.contract.values import Json
from headrace.spool.reader import SpoolReader

STREAMING_WITHIN = 30.0


class Following(Protocol):
    """The part of a loop that follows the stream."""

    cursor: int
    runner: EpochRunner


class Receiving:
    """The stream of an attempt, from the receiver to the work on epochs. Only the loop's thread uses it."""

    def __init__(self, place: RunContext, ledger: Ledger, connection: Connection) -> None:
        self._place = place
        self._ledger = ledger
        self._connection = connection
        self.receiver = Receiver(self._feed())
        self.runner = self._runner()
        self._changed = False  # perhaps other tables than when they were last compared with the feed

    def start(self, stop: threading.Event) -> None:
        """Begin at the newest mark, and wait until the stream has passed its checks."""
        self.receiver.start(self._ledger.position)
        deadline = time.monotonic() + STREAMING_WITHIN
        while not self.receiver.poll().streaming and not stop.is_set() and time.monotonic() < deadline:
            time.sleep(0.01)
        self._begin_work()

    def on_published(self, epoch: Epoch) -> None:
        """Take note of an epoch that may have brought tables, or removed some."""
        self._changed |= bool(epoch.records or epoch.removed_tables)

    def turn(self, owner: Following) -> None:
        """Begin again if other tables are to be picked by now; called in each turn of the loop."""
        if self._changed and self._picking() != self.receiver.feed.upstream:
            self._end_work()
            self.receiver.stop()
            self.receiver.feed = self._feed()
            self.receiver.start(self._ledger.position)
            self._begin_work()
            owner.cursor, owner.runner = 0, self.runner
        self._changed = False

    def close(self) -> None:
        self._end_work()
        self.receiver.stop()

    def _picking(self) -> Json:
        source = self._ledger.source
        assert source is not None
        tables = {*self._ledger.tables, *self._ledger.staged}
        picking = registry.stream_source(source.kind).picking
        if picking is None:
            return source.upstream
        return picking(source.upstream, tables, self._place.config.options)

    def _feed(self) -> Feed:
        assert self._ledger.source is not None
        return Feed(
            self._ledger.source.kind,
            self._connection.address,
            self._connection.identity,
            self._picking(),
            self._place.spool,
            streaming=self._place.config.streaming == "auto",
            last=self._ledger.last_commits,
        )

    def _runner(self) -> EpochRunner:
        assert self._ledger.source is not None
        return EpochRunner(
            spool=str(self._place.spool),
            reader=SpoolReader(self._place.spool),
            driver=self._place.driver,
            spark=self._place.spark,
            source=registry.by_kind(self._ledger.source.kind),
            driver_epochs=self._place.config.driver_epochs,
            merge_rule=REWRITE if self._place.iceberg else self._place.config.merge,
            row_cache=self._place.config.row_cache,
            ships_bytes=self._place.ships_bytes,
            is_quicker_here=self._place.is_quicker_here,
            wake_spark=self._place.wake_spark,
        )

    def _begin_work(self) -> None:
        """Read the spool that the receiver writes now."""
        eager = None
        if self._place.config.streaming == "auto":
            eager = _eager(self._place, self._ledger, self.runner.source.decoder())
            eager.start()
        self.runner = replace(self.runner, reader=SpoolReader(self._place.spool), eager=eager)

    def _end_work(self) -> None:
        if self.runner.eager is not None:
            self.runner.eager.close()
        self.runner = replace(self.runner, eager=None)


def _eager(place: RunContext, ledger: Ledger, decoder: Decoder) -> EagerDecoding:
    """Make the work ahead on transactions that still run."""

    def tables() -> dict[int, TableTask]:
        attached = [] if ledger.recovering else [r for r in ledger.tables.values() if r.state.follows]
        return {record.number: ledger.outline(record) for record in attached}

    site = AheadContext(
        place.store, ledger.address, place.name, place.spool, place.spark, place.ships_bytes, decoder
    )
    return EagerDecoding(site, tables)
