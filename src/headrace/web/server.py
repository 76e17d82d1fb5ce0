"""The web server: connections, their limits and deadlines, in one thread that holds up no other.

    with serving(wanted, ["./lake"]) as url: ...     a thread of this process answers at `url`

An event loop (asyncio) reads heads and writes bodies. A few threads beside it make the answers, so a store
that hangs holds up neither the loop nor `/healthz`. Clients can use only bounded memory, files and time:

    a connection       one of `MAX_CONNECTIONS`; one more closes the connection that has been idle longest or,
                       if none is idle, the one whose request came first
    a head             at most 16 kB, whole within `HEAD_SECONDS`
    an answer          made within `ANSWER_SECONDS`, else 503
    a body             sent in pieces as the client reads, whole within `BODY_SECONDS`, else cut off

Nothing is logged: a proxy can log requests. A run's own threads share no lock with this one; both read the
lake.
"""

from __future__ import annotations

import asyncio
import struct
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from socket import SO_LINGER, SOL_SOCKET, socket

from headrace.core.errors import Definite, Transient, place_of
from headrace.status.watch import Watch
from headrace.web.http import MAX_HEAD, BadRequest, HttpRequest, Response, parse, refusal, too_large
from headrace.web.settings import BACKLOG, Settings, listener
from headrace.web.site import Site

MAX_CONNECTIONS = 256
HEAD_SECONDS = 10.0
IDLE_SECONDS = 75.0  # longer than a scrape interval: a scraper keeps its connection
ANSWER_SECONDS = 10.0
BODY_SECONDS = 30.0
_PIECE = 64 << 10
_ANSWERERS = 4
_GRACE_SECONDS = 2.0


@contextmanager
def serving(settings: Settings, lakes: Sequence[str]) -> Iterator[str]:
    """Serve these lakes while the body runs; yield the URL."""
    sock = listener(settings)
    watches = [Watch(lake) for lake in lakes]
    server = Server(sock, Site(settings, watches))
    thread = threading.Thread(target=server.run, name="headrace-web", daemon=True)
    thread.start()
    host, port = sock.getsockname()[:2]
    try:
        yield f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    finally:
        server.stop()
        thread.join(_GRACE_SECONDS)
        for watch in watches:
            watch.stop()


class Server:
    """The event loop and the threads that make answers."""

    def __init__(self, sock: socket, site: Site) -> None:
        self.site = site
        self._sock = sock
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self.answerers = ThreadPoolExecutor(_ANSWERERS, thread_name_prefix="headrace-web-answer")
        self.connections: dict[
            WebConnection, None
        ] = {}  # in the order of their last request, the oldest first

    def run(self) -> None:
        """Serve until `stop`; the thread runs nothing else."""
        # asyncio would log why a client's connection broke: nobody who runs a mirror needs that.
        self._loop.set_exception_handler(lambda _loop, _context: None)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self.answerers.shutdown(wait=False, cancel_futures=True)
            self._loop.close()

    def stop(self) -> None:
        """End the loop; any thread may call it."""
        self._loop.call_soon_threadsafe(self._over.set)

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            partial(WebConnection, self), sock=self._sock, backlog=BACKLOG
        )
        await self._over.wait()
        server.close()
        for connection in list(self.connections):
            connection.abort()

    def admit(self, connection: WebConnection) -> None:
        """Add a connection; if there are too many, close one, as the module's essay says."""
        if len(self.connections) >= MAX_CONNECTIONS:
            oldest = next(iter(self.connections))
            next((each for each in self.connections if not each.busy), oldest).abort()
        self.connections[connection] = None

    def touch(self, connection: WebConnection) -> None:
        """Note that the client sent a request."""
        if connection in self.connections:
            del self.connections[connection]
            self.connections[connection] = None


class WebConnection(asyncio.Protocol):
    """One client: it reads a head, answers, and reads the next."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._buffer = bytearray()
        self._writable = asyncio.Event()
        self._work: asyncio.Task[None] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        return self._work is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._local = str(transport.get_extra_info("sockname", ("",))[0])
        transport.set_write_buffer_limits(high=_PIECE)
        self._writable.set()
        self._expire(HEAD_SECONDS)
        self._server.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.connections.pop(self, None)
        self._expire(None)
        if self._work is not None:
            self._work.cancel()

    def data_received(self, data: bytes) -> None:
        if not self._buffer:
            self._expire(HEAD_SECONDS)
        self._buffer += data
        self._next()

    def eof_received(self) -> bool:
        return self._work is not None  # a client that closed its half still gets its answer

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def abort(self) -> None:
        self._server.connections.pop(self, None)
        if self.busy:
            # Let the kernel drop at once what a client has not read: it may be megabytes.
            self._transport.get_extra_info("socket").setsockopt(
                SOL_SOCKET, SO_LINGER, struct.pack("ii", 1, 0)
            )
        self._transport.abort()

    def _expire(self, seconds: float | None) -> None:
        """Close the connection after so many seconds; a new call replaces the deadline, None removes it."""
        if self._deadline is not None:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else loop.call_later(seconds, self.abort)

    def _next(self) -> None:
        """Begin to answer the next whole request in the buffer, if there is one."""
        if self._work is not None or self._transport.is_closing():
            if len(self._buffer) > MAX_HEAD:
                self._transport.pause_reading()
            return
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD)
        if end < 0 and len(self._buffer) < MAX_HEAD:
            return
        request: HttpRequest | BadRequest
        if end < 0:
            request = too_large()
        else:
            head = bytes(self._buffer[:end])
            del self._buffer[: end + 4]
            try:
                request = parse(head)
            except BadRequest as error:
                request = error
        self._expire(None)
        self._server.touch(self)
        self._work = asyncio.get_running_loop().create_task(self._respond(request))

    async def _respond(self, request: HttpRequest | BadRequest) -> None:
        keep_alive = isinstance(request, HttpRequest) and request.keep_alive
        if isinstance(request, BadRequest):
            response, bodiless = request.response, False
        else:
            response, bodiless = await self._answer(request), request.method == "HEAD"
            keep_alive &= response.status < 400 or response.status in (404, 503)
        self._expire(BODY_SECONDS)
        await self._send(response.head(keep_alive), b"" if bodiless else response.body)
        self._work = None
        if not keep_alive:
            self._transport.close()
            return
        self._expire(HEAD_SECONDS if self._buffer else IDLE_SECONDS)
        self._transport.resume_reading()
        self._next()

    async def _answer(self, request: HttpRequest) -> Response:
        site = self._server.site
        refused = site.refuses(request, self._local)
        if refused is not None:
            return refused
        if request.path == "/healthz":
            return site.healthz()
        loop = asyncio.get_running_loop()
        answer = loop.run_in_executor(self._server.answerers, _safely, site, request)
        try:
            return await asyncio.wait_for(answer, ANSWER_SECONDS)
        except TimeoutError:
            return refusal(
                503, Transient("WEB_BUSY", "the answer takes too long", hint="ask again in a few seconds")
            )

    async def _send(self, head: bytes, body: bytes) -> None:
        self._transport.write(head)
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            await self._writable.wait()
            self._transport.write(view[start : start + _PIECE])
        await self._writable.wait()


def _safely(site: Site, request: HttpRequest) -> Response:
    """Answer a request. One of the named supervisors: a bug becomes an answer, and the server goes on."""
    try:
        return site.answer(request)
    except Exception as error:  # noqa: BLE001 - nobody else would learn of it
        fault = Definite(
            "WEB_FAULT", "the answer met a fault of ours", detail=place_of(error), hint="report this line"
        )
        return refusal(500, fault)
