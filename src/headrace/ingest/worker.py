"""The receiver process: from the stream of one source into its spool, whatever the driver does.

Started by `ingest.supervisor` as `python -m headrace.ingest.worker`; a process of its own,
so that the server is answered in time while the driver's process is busy, stopped or starved.

    stdin    line 1: what to do, secrets included (they are never in argv or the environment)
             then    {"ack": {...}}       the lake holds everything before this position, durably
                     {"stop": true}        finish; so does the end of stdin, for then the driver is gone
             {}                    the driver lives; who has not heard it for a minute ends as well
    stdout   {"event": "streaming", ...}   the checks are passed, bytes will come
             {"event": "progress", ...}    once a second, and soon after a transaction has come whole;
                                           dropped while nobody reads
             {"event": "failed", ...}      the last line: a coded error
             {"event": "stopped"}          the last line: as asked for

One connection, one session of the spool: when the connection is lost the process ends with a transient
error, and whether and when another one starts is the driver's policy. While the spool is full nothing is
read, and the server is answered all the same.

Nothing is acknowledged before the source has sent again all that is known of it: it would forget that, and
what shows that it is another server, or another life of this one, would not come a second time. Of what was
in the spool before, the driver publishes only what has come again, so it is told at once how far that is;
and a full spool does not keep the comparison from going on.
"""

from __future__ import annotations

import io
import json
import os
import select
import threading
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from headrace.core.errors import HeadraceError
from headrace.core.failpoint import failpoint
from headrace.core.position import ORIGIN, Position
from headrace.core.records import from_record, parse, to_record
from headrace.ingest.last_commits import LastCommits
from headrace.ingest.replay_check import RecentTransactions
from headrace.ingest.store_stream import Intake
from headrace.sources import registry
from headrace.sources.contract.stream import Orders, Stream
from headrace.spool.writer import SpoolWriter

READ_TIMEOUT = 0.1  # how long a command waits at most
UNSETTLED_TIMEOUT = 0.02  # how long the news of an idle source waits at most
NEWS_EVERY = 0.02  # the driver, which waits for it, hears of transactions no more often
PROGRESS_EVERY = 1.0
LONGEST_STEP = 1.0  # of the clock, between two looks at it, that counts
PATIENCE = 60.0  # without a word of the driver, which is far longer than a loaded machine keeps it from one
ORPHANED = 75  # the exit code then: the driver may not be able to take a last line
SETTLE_EVERY = 0.1

At = Callable[[int], Position | None]  # the position at a time, where the source can tell


@dataclass(frozen=True, slots=True, repr=False)
class ReceiverOrders:
    """The orders of the process. Holds the password: never shown."""

    kind: str  # of the source
    stream: Orders
    folder: str
    limit_bytes: int
    last: LastCommits | None = None  # what the lake remembers of the stream before the stream's frontier
    patience: float = PATIENCE

    def to_json(self) -> str:
        return json.dumps(to_record(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> ReceiverOrders:
        return parse(cls, text)


class Commands(threading.Thread):
    """Reads the driver's lines, so that the loop never waits for them."""

    def __init__(self, lines: io.FileIO) -> None:
        super().__init__(daemon=True)
        self._lines = lines
        self.acknowledged = ORIGIN
        self.heard = 0  # lines
        self.stopped = threading.Event()

    def run(self) -> None:
        for line in self._lines:
            self.heard += 1
            command = json.loads(line)
            if "ack" in command:
                self.acknowledged = max(self.acknowledged, from_record(Position, command["ack"]))
            if command.get("stop"):
                self.stopped.set()
                return
        # The driver is gone, and with it everybody who could be told. The spool needs no goodbye.
        os._exit(0)


class Silence:
    """For how long the driver has not been heard, in time that this process was running itself.

    A machine that was suspended wakes with a clock that has gone on; the driver is not to blame for that.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._heard = self._seconds = 0.0
        self._asked: float | None = None

    def over(self, now: float, heard_bytes: int) -> bool:
        """Tell whether patience is at its end; to be asked often."""
        passed = 0.0 if self._asked is None else min(now - self._asked, LONGEST_STEP)
        self._seconds = 0.0 if heard_bytes != self._heard else self._seconds + passed
        self._asked, self._heard = now, heard_bytes
        return self._seconds > self._patience


class ReceiverLoop:
    """The loop and its clocks."""

    def __init__(
        self,
        stream: Stream,
        at: At,
        writer: SpoolWriter,
        known: RecentTransactions,
        commands: Commands,
        patience: float,
    ) -> None:
        self._stream = stream
        self._at = at
        self._writer = writer
        self._known = known
        self._intake = Intake(writer, known)
        self._commands = commands
        self._silence = Silence(patience)
        self._received = 0
        self._full = False
        self._heard = time.time()
        self._has_news = False  # transactions of which the driver has not heard
        self._next_feedback = self._next_progress = self._next_settling = self._next_news = 0.0
        self._said = known.confirmed_until

    def run(self) -> None:
        """Until a stop is asked for."""
        while not self._commands.stopped.is_set():
            self._keep_time()
            # What comes again takes no room, and unless it comes the driver frees nothing.
            self._full = self._known.is_over and self._writer.full(self._intake.needed_from)
            if self._full:
                self._commands.stopped.wait(READ_TIMEOUT)
                continue
            unsettled = self._intake.is_ahead or self._has_news
            received = self._stream.read(UNSETTLED_TIMEOUT if unsettled else READ_TIMEOUT)
            if received is None:
                self._intake.settle()
            else:
                self._heard = time.time()
                self._received += received.size
                self._intake.take(received)
                self._has_news |= bool(len(received.transactions))
        self._feedback()

    def _keep_time(self) -> None:
        now = time.monotonic()
        if self._silence.over(now, self._commands.heard):
            # The driver is frozen: whoever takes the source over needs the stream and the spool.
            os._exit(ORPHANED)
        if now >= self._next_feedback:
            self._next_feedback = now + self._stream.pause
            self._feedback()
        confirmed = self._known.confirmed_until
        news = confirmed != self._said and (confirmed is None or now >= self._next_settling)
        if now >= self._next_settling:
            self._next_settling = now + SETTLE_EVERY
            self._intake.settle()
        news |= self._has_news and now >= self._next_news
        if news or now >= self._next_progress:
            self._next_progress, self._next_news = now + PROGRESS_EVERY, now + NEWS_EVERY
            self._has_news = False
            self._progress()

    def _feedback(self) -> None:
        acknowledged, written = self._commands.acknowledged, _spooled_until(self._writer, self._at)
        if not self._known.is_over:
            # Nor written: a server says by itself that it has sent all there is only if that is news to us.
            acknowledged = written = self._stream.start
        if self._stream.feedback is not None:
            self._stream.feedback(acknowledged, written)

    def _progress(self) -> None:
        source_end, source_ts = self._writer.source
        self._said = self._known.confirmed_until
        emit(
            event="progress",
            frontier=self._writer.frontier,
            confirmed_until=self._said,
            address=self._writer.address,
            source_end=source_end,
            source_ts=source_ts,
            received_bytes=self._received,
            full=self._full,
            running=len(self._intake.running),
            running_bytes=self._intake.running_bytes,
            heard_at=self._heard,
        )


def _spooled_until(writer: SpoolWriter, at: At) -> Position:
    """Say how far the spool has the stream; of a source that cannot tell it by its time, at least so far."""
    written = at(writer.frontier) or writer.places.newest
    assert written is not None  # the lake's frontier is the first
    return written


def _place_of(time: int) -> None:
    """The position at a time, of a source of which only the stream tells it."""


def emit(*, last: bool = False, **event: Any) -> None:
    """Write one line; unless it is the last, drop it rather than wait for a driver that does not read."""
    line = json.dumps(event).encode() + b"\n"
    try:
        while line:
            if not last and not select.select([], [1], [], 0)[1]:
                return  # a pipe is writable when it has room for the longest line of ours
            line = line[os.write(1, line) :]
    except BrokenPipeError:
        os._exit(0)


def receive(orders: ReceiverOrders, lines: io.FileIO) -> None:
    """Do as ordered until told to stop."""
    # The stream stays where it is until the driver says what is durable: the lake's frontier need not be.
    commands = Commands(lines)
    commands.start()
    folder, wanted = Path(orders.folder), orders.stream
    source = registry.stream_source(orders.kind)
    at = _place_of if source.at is None else partial(source.at, wanted.upstream)
    with SpoolWriter(folder, orders.limit_bytes, wanted.frontier.time) as writer:
        if at(wanted.frontier.time) is None:
            writer.places.say(wanted.frontier)
        changed = partial(source.history_changed, wanted.upstream)
        known = RecentTransactions.of(folder, changed, orders.last, wanted.frontier.time)
        with closing(
            source.open_stream(replace(wanted, received_until=_spooled_until(writer, at)))
        ) as stream:
            again = known.from_start(stream.start.time)
            emit(
                event="streaming",
                session=writer.session,
                start=stream.start.time,
                frontier=writer.frontier,
                confirmed_until=again.confirmed_until,
            )
            failpoint("receive.before")
            ReceiverLoop(stream, at, writer, again, commands, orders.patience).run()


def main() -> int:
    # Unbuffered: a thread that waits in a buffered reader holds a lock that the interpreter's end wants.
    lines = io.FileIO(0, closefd=False)
    orders = ReceiverOrders.from_json(lines.readline())
    try:
        receive(orders, lines)
    except HeadraceError as error:
        emit(last=True, event="failed", error=to_record(error))
        return 1
    emit(last=True, event="stopped")
    return 0


if __name__ == "__main__":
    # All is closed and said. The interpreter's own end, which unloads the kernels, takes a third as long as
    # the start, and the driver waits for it.
    os._exit(main())
