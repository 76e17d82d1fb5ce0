"""The driver's hold on the receiver process: start it, ask it, acknowledge, stop it.

    receiver = Receiver(Feed(kind, address, identity, upstream, folder))
    receiver.start(frontier)      the spool is made fit for this source, the process runs
    receiver.poll()               how far it is; raises the error that it ended with
    receiver.acknowledge(frontier)  of a published mark: the source may forget what lies before
    receiver.stop()

A thread of its own tells the process now and then that the driver lives; a driver that was frozen has none,
and then the process ends, so that whoever takes the source over finds spool and stream free.

What the process does, and the lines that travel, is in `worker`. Nothing here waits but `stop`; the driver
sees new transactions by asking its own `SpoolReader`.

The spool is kept over restarts as long as it is a spool of the same stream and holds everything from the
frontier on (`spool.reader.prepare`), so that a lost connection does not cost what was received but is not in
the lake yet. After each start the driver opens a new `SpoolReader`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.core.errors import HeadraceError, Transient
from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.ingest import worker
from headrace.ingest.last_commits import LastCommits
from headrace.ingest.worker import ORPHANED, PATIENCE, ReceiverOrders
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.hash_key import hash_key
from headrace.sources.contract.mirror import Address
from headrace.sources.contract.stream import Orders
from headrace.sources.contract.values import Json
from headrace.spool.process import running_since
from headrace.spool.reader import prepare

LIMIT_BYTES = 8 * 1024**3
BEATS = 12  # words of the driver in the time for which the process is patient
_STOP_WITHIN = 5.0
_SOURCE_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ReceiverProgress:
    """The progress of a receiver, as it last said."""

    streaming: bool = False  # connected and checked
    session: int = 0
    start: int = 0  # the time that the server began to send at
    frontier: int = 0  # complete in the spool up to this time, exclusively
    confirmed_until: int | None = 0  # up to here the server has sent again what we had; None: all of it
    source_end: int = 0  # how far the server has read its own log
    source_ts: int = 0  # its clock then, microseconds since 1970; 0 while unknown
    address: int = 0  # of the spool's end
    received_bytes: int = 0  # bytes in this session
    full: bool = False  # the spool is at its limit; nothing is read until the driver frees some
    running: int = 0  # transactions that are streamed while they run, and have not ended
    running_bytes: int = 0  # what has come of them
    heard_at: float = 0.0  # when the source last sent something, be it an idle word; seconds since 1970


@dataclass(frozen=True, slots=True)
class Feed:
    """A stream to receive, and where to."""

    kind: str  # of the source
    address: Address
    identity: Json
    upstream: Json
    folder: Path
    limit_bytes: int = LIMIT_BYTES
    silence: float | None = None
    streaming: bool = False  # large transactions while they run, where the source can
    last: LastCommits | None = None  # what the lake remembers of the stream before the frontier
    patience: float = PATIENCE  # for how long the process goes on without a word of the driver

    @property
    def origin(self) -> Mapping[str, Any]:
        """All that must be the same for the spool's contents to be of use."""
        return {
            "kind": self.kind,
            "identity": self.identity,
            "upstream": self.upstream,
            # Nothing of a spool is ever synced: what is left of it after a power cut is not worth reading.
            "machine": running_since(),
        }

    def orders(self, frontier: Position) -> ReceiverOrders:
        key = hash_key(ColumnRules.of_record(self.upstream))
        stream = Orders(
            address=self.address.text,
            identity=self.identity,
            upstream=self.upstream,
            frontier=frontier,
            received_until=frontier,  # or further: the process sees what the spool has
            newest=None if self.last is None else self.last.newest,
            running=self.streaming,
            silence=self.silence,
            hash_key="" if key is None else key.text,
        )
        return ReceiverOrders(
            kind=self.kind,
            stream=stream,
            folder=str(self.folder),
            limit_bytes=self.limit_bytes,
            last=self.last,
            patience=self.patience,
        )


class Receiver:
    """One receiver process at a time."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed  # of the next process
        self._process: subprocess.Popen[bytes] | None = None
        self._progress = ReceiverProgress()
        self._partial = b""
        self._failure: HeadraceError | None = None
        self._writing = threading.Lock()
        self._reading = threading.Lock()
        self._unseen = False  # something was heard since the last `poll`
        self._over = threading.Event()  # nobody needs to be told any more that we live

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def progress(self) -> ReceiverProgress:
        """Its newest word, as far as `poll` has listened."""
        return self._progress

    def start(self, frontier: Position) -> None:
        """Run the process; the lake holds everything before `frontier`."""
        if self.alive:
            raise ValueError("this receiver is running already")
        prepare(self.feed.folder, self.feed.origin, frontier.time)
        process = start_process()
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        # Its orders come first: another thread acknowledges, and does so as soon as there is a process.
        with self._writing, self._reading:
            self._progress, self._partial, self._failure = ReceiverProgress(frontier=frontier.time), b"", None
            self._process = process
            _write(process, self.feed.orders(frontier).to_json())
        self._over = threading.Event()
        beat = threading.Thread(
            target=self._beat, args=(process, self._over), name="headrace-beat", daemon=True
        )
        beat.start()

    def poll(self) -> ReceiverProgress:
        """The newest word of the process; the error that it ended with is raised."""
        ended = self._process is not None and not self.alive  # before the reading of its last words
        self.listen(by_loop=True)
        if self._failure is not None:
            self.kill()  # that was its last word
            raise self._failure
        if ended:
            raise self._sudden_end()
        return self._progress

    def wait(self, seconds: float) -> None:
        """Wait until the process says something that `poll` has not seen, for at most so long."""
        process = self._process
        if self._unseen or process is None or process.stdout is None or process.stdout.closed:
            return
        select.select([process.stdout], [], [], seconds)

    def acknowledge(self, frontier: Position) -> None:
        """Let the source forget what lies before `frontier`: all of it is durable in the lake."""
        self._tell(json.dumps({"ack": to_record(frontier)}))

    def stop(self) -> None:
        """End the process, after it has passed on the last acknowledgement."""
        if self._process is None:
            return
        self._tell(json.dumps({"stop": True}))
        try:
            self._process.wait(_STOP_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
        self._close()

    def kill(self) -> None:
        """End the process at once. Nothing is lost by it."""
        self._over.set()
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _tell(self, line: str) -> None:
        with self._writing:
            if self._process is not None:  # else between two; the next begins with what the lake holds
                _write(self._process, line)

    def _beat(self, process: subprocess.Popen[bytes], over: threading.Event) -> None:
        """Tell the process that we live, for as long as it does."""
        assert process.stdin is not None
        while not over.wait(self.feed.patience / BEATS) and process.poll() is None:
            with self._writing:
                # A full pipe is read by nobody: waiting here would hold up who stops the process.
                if process.stdin.closed or not select.select([], [process.stdin], [], 0)[1]:
                    continue
                try:
                    process.stdin.write(b"{}\n")
                    process.stdin.flush()
                except BrokenPipeError:
                    return

    def listen(self, *, by_loop: bool = False) -> None:
        """Take what the process has said; any thread may ask. `poll` alone raises what it ended with.

        What the loop takes itself is no news to it: `wait` goes on waiting.
        """
        with self._reading:
            if self._process is None or self._process.stdout is None:
                return
            descriptor = self._process.stdout.fileno()
            try:
                while data := os.read(descriptor, 1 << 16):
                    self._partial += data
            except BlockingIOError:
                pass
            *lines, self._partial = self._partial.split(b"\n")
            self._unseen = not by_loop and (self._unseen or bool(lines))
            for line in lines:
                self._heed(json.loads(line))

    def _heed(self, event: dict[str, Any]) -> None:
        kind = event.pop("event")
        if kind == "failed":
            self._failure = from_record(HeadraceError, event["error"])
        elif kind == "streaming":
            self._progress = ReceiverProgress(
                streaming=True,
                session=event["session"],
                start=event["start"],
                frontier=event["frontier"],
                confirmed_until=event["confirmed_until"],
            )
        elif kind == "progress":
            self._progress = ReceiverProgress(
                streaming=True,
                session=self._progress.session,
                start=self._progress.start,
                **event,
            )

    def _sudden_end(self) -> Exception:
        assert self._process is not None
        code = self._process.returncode
        if code == ORPHANED:
            return Transient(
                "RECEIVER_ORPHANED",
                "the receiver process ended, since this process was silent for too long",
                detail=f"for {self.feed.patience:.0f} s of the receiver's own time",
                hint="was it stopped, or the machine suspended? nothing to do: another one is started, "
                "unless another run has taken the source over",
            )
        if code < 0:
            return Transient(
                "RECEIVER_KILLED",
                "the receiver process was killed",
                detail=f"by signal {-code}",
                hint="nothing to do: another one is started; look for the kernel's memory killer "
                "if it comes back",
            )
        return RuntimeError(f"the receiver process ended with exit code {code}; it was not asked to")

    def _close(self) -> None:
        assert self._process is not None
        self._over.set()
        with self._writing, self._reading:
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    # What `_tell` could not bring to a process that has ended is still in the pipe's buffer.
                    with suppress(BrokenPipeError):
                        pipe.close()
            self._process = None


def _write(process: subprocess.Popen[bytes], line: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # it has ended: `poll` says how
        process.stdin.write(line.encode() + b"\n")
        process.stdin.flush()


def start_process() -> subprocess.Popen[bytes]:
    """Start the process; it waits for its orders."""
    return subprocess.Popen(
        [sys.executable, "-m", worker.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # a Ctrl-C is the driver's to handle
    )


def _environment() -> dict[str, str]:
    """This process's environment, in which the new one finds the same headrace."""
    paths = [str(_SOURCE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
