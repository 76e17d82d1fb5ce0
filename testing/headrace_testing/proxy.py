"""A TCP connection that can be broken in every way in which networks break.

    with Proxy(server.host, server.port) as proxy:
        url = server.url(port=proxy.port)

    cut         every connection is reset, at both ends; new ones pass
    stall       nothing is forwarded, nothing is closed, new connections hang too; until `resume`
    half_open   the server's end is reset, the client's stays open and silent for ever; new ones pass
    delay       every byte arrives so many seconds late, throughput is kept as far as buffers go
    throttle    so many bytes a second, for each connection and direction
    refuse      nobody listens on the port any more; until `admit`
    lead_to     new connections pass to another server
    alter       what goes to the client is changed on its way, or ends at a byte: on new connections
    heal        all of that is over, except that what was cut or half-opened stays so, and what was altered

A link is two directions, each a reader and a writer with a small queue of (due time, bytes) between
them. Buffers are kept small on purpose, those of the kernel too: behind a throttle of 30 kB/s a
megabyte in a buffer would be half a minute in which nobody notices anything. Sockets wake twenty times
a second to see whether their link was cut, because a socket closed while a thread reads it sends
its reset only when that thread returns.
"""

from __future__ import annotations

import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType

from headrace_testing.ports import free_port

CHUNK = 16 * 1024
CHUNKS_IN_FLIGHT = 8
KERNEL_BUFFER = 64 * 1024
WAKE = 0.05

_Pipe = queue.Queue[tuple[float, bytes]]

# The bytes to the client of one connection, as they come; what it gets instead. Where that ends before they
# do, the connection ends in order.
Altering = Callable[[Iterator[bytes]], Iterator[bytes]]


def unaltered(chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Let everything pass as it is."""
    return chunks


class Counts:
    """The numbers of what has passed so far; counted by many threads."""

    def __init__(self) -> None:
        self.connections = 0
        self.refused_upstream = 0
        self.bytes_to_client = 0
        self._lock = threading.Lock()

    def passed(self, size: int, *, to_server: bool) -> None:
        with self._lock:
            self.bytes_to_client += 0 if to_server else size


@dataclass
class _Weather:
    """The weather that all links of a proxy are under at the moment."""

    delay: float = 0.0
    rate: float | None = None
    flowing: threading.Event = field(default_factory=threading.Event)
    altering: Altering = unaltered


class Proxy:
    """A listener that forwards to one server, on a free port of 127.0.0.1 or at the address `at`."""

    def __init__(self, host: str, port: int, *, at: tuple[str, int] | None = None) -> None:
        self.host, self.port = at or ("127.0.0.1", free_port())
        self.counts = Counts()
        self._upstream = (host, port)
        self._weather = _Weather()
        self._weather.flowing.set()
        self._links: list[_Link] = []
        self._lock = threading.Lock()
        self._listener: _Listener | None = None

    def __enter__(self) -> Proxy:
        self.admit()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.refuse()
        self.cut()

    @property
    def open_links(self) -> int:
        """Connections that are open at both ends."""
        with self._lock:
            self._links = [link for link in self._links if not link.closed]
            return sum(not link.half for link in self._links)

    def cut(self) -> None:
        """Reset every connection; half-open ones lose their other half too."""
        with self._lock:
            links, self._links = self._links, []
        for link in links:
            link.reset()

    def half_open(self) -> None:
        """Reset the server's end of every connection, and leave the client in the belief that it stands."""
        with self._lock:
            links = list(self._links)
        for link in links:
            link.half_open()

    def stall(self) -> None:
        self._weather.flowing.clear()

    def resume(self) -> None:
        self._weather.flowing.set()

    def delay(self, seconds: float) -> None:
        self._weather.delay = seconds

    def throttle(self, bytes_per_second: float | None) -> None:
        """None lifts the limit."""
        self._weather.rate = bytes_per_second

    def alter(self, altering: Altering) -> None:
        """Change what goes to the client, on every connection that is made from now on."""
        self._weather.altering = altering

    def lead_to(self, host: str, port: int) -> None:
        """Lead new connections to another server; what is open stays open."""
        self._upstream = (host, port)

    def refuse(self) -> None:
        """Stop listening; what is open stays open."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def admit(self) -> None:
        """Listen (again) on the same port."""
        if self._listener is None:
            self._listener = _Listener((self.host, self.port), self._accept)

    def heal(self) -> None:
        """Let everything pass as if nothing had ever been."""
        self.delay(0.0)
        self.throttle(None)
        self.alter(unaltered)
        self.resume()
        self.admit()

    def _accept(self, client: socket.socket) -> None:
        self.counts.connections += 1
        server = socket.socket()
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        try:
            server.connect(self._upstream)
        except OSError:
            # The server is down: the client is to see what it would see without us.
            self.counts.refused_upstream += 1
            _reset(client)
            return
        link = _Link(client, server, self._weather, self.counts)
        # In one step, so that a cut meets no link that has begun to run and is not yet known.
        with self._lock:
            link.start()
            self._links.append(link)


class _Listener:
    """The listening socket and the thread that accepts on it."""

    def __init__(self, address: tuple[str, int], accept: Callable[[socket.socket], None]) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, KERNEL_BUFFER)
        self._socket.bind(address)
        self._socket.listen(128)
        self._socket.settimeout(WAKE)
        self._accept = accept
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="proxy-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                client, _ = self._socket.accept()
            except TimeoutError:
                continue
            self._accept(client)


class _Link:
    """One client, one connection to the server, four threads between them."""

    def __init__(
        self, client: socket.socket, server: socket.socket, weather: _Weather, counts: Counts
    ) -> None:
        self.half = False
        self._client = client
        self._server = server
        self._weather = weather
        self._counts = counts
        self._stop = threading.Event()
        self._started = threading.Event()
        self._lock = threading.Lock()
        self._ended = 0
        self._threads: list[threading.Thread] = []
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, KERNEL_BUFFER)
            end.settimeout(WAKE)

    @property
    def closed(self) -> bool:
        return self._client.fileno() == -1

    def start(self) -> None:
        for source, target in ((self._client, self._server), (self._server, self._client)):
            pipe: _Pipe = queue.Queue(CHUNKS_IN_FLIGHT)
            self._threads += [
                threading.Thread(target=self._read, args=(source, pipe), name="proxy-read", daemon=True),
                threading.Thread(target=self._write, args=(target, pipe), name="proxy-write", daemon=True),
            ]
        for thread in self._threads:
            thread.start()
        self._started.set()

    def reset(self) -> None:
        self._halt()
        with self._lock:
            _reset(self._client)
            _reset(self._server)

    def half_open(self) -> None:
        self._halt()
        self.half = True
        with self._lock:
            _reset(self._server)

    def _halt(self) -> None:
        self._stop.set()
        # A thread that meets a reset at once may ask for this before the others have begun.
        self._started.wait()
        for thread in self._threads:
            thread.join()

    def _read(self, source: socket.socket, pipe: _Pipe) -> None:
        chunks = self._chunks(source)
        for data in self._weather.altering(chunks) if source is self._server else chunks:
            if not self._put(pipe, (time.monotonic() + self._weather.delay, data)):
                return
        self._put(pipe, (time.monotonic() + self._weather.delay, b""))

    def _chunks(self, source: socket.socket) -> Iterator[bytes]:
        """Yield what arrives, up to its end; a reset ends the link."""
        while not self._stop.is_set():
            try:
                data = source.recv(CHUNK)
            except TimeoutError:
                continue
            except OSError:
                self._fall()
                return
            if not data:
                return
            yield data

    def _put(self, pipe: _Pipe, item: tuple[float, bytes]) -> bool:
        while not self._stop.is_set():
            try:
                pipe.put(item, timeout=WAKE)
            except queue.Full:
                continue
            return True
        return False

    def _write(self, target: socket.socket, pipe: _Pipe) -> None:
        while not self._stop.is_set():
            try:
                due, data = pipe.get(timeout=WAKE)
            except queue.Empty:
                continue
            self._stop.wait(max(0.0, due - time.monotonic()))
            if not self._deliver(target, data):
                return

    def _deliver(self, target: socket.socket, data: bytes) -> bool:
        """Send a chunk under the weather of the moment; False if the direction has ended."""
        try:
            if not data:
                self._end(target)
                return False
            while data and not self._stop.is_set():
                data = data[self._send(target, data) :]
        except OSError:
            self._fall()
            return False
        return True

    def _send(self, target: socket.socket, data: bytes) -> int:
        if not self._weather.flowing.wait(WAKE):
            return 0
        rate = self._weather.rate
        # A twentieth of a second's worth at a time, so that a slow link trickles and does not gush.
        piece = data if rate is None else data[: max(1, int(rate / 20))]
        try:
            sent = target.send(piece)
        except TimeoutError:
            return 0
        self._counts.passed(sent, to_server=target is self._server)
        if rate is not None:
            self._stop.wait(sent / rate)
        return sent

    def _end(self, target: socket.socket) -> None:
        """One direction is through: say so to its target, and close when both are."""
        target.shutdown(socket.SHUT_WR)
        with self._lock:
            self._ended += 1
            if self._ended == 2:
                self._stop.set()
                self._client.close()
                self._server.close()

    def _fall(self) -> None:
        """One end was reset: reset the other, in a thread that may wait for ours."""
        if not self._stop.is_set():
            self._stop.set()
            threading.Thread(target=self.reset, name="proxy-reset", daemon=True).start()


def _reset(end: socket.socket) -> None:
    """Close with a RST instead of a FIN: what a peer sees of a machine that lost its memory."""
    if end.fileno() != -1:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        end.close()
