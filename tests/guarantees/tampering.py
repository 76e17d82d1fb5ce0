"""A connection on whose way back somebody changes bytes: what a server of ours would never send.

    with tampered(server, b"I" + oid, b"?" + oid) as port: ...

A real server can't be made to break its protocol, so its words are changed between it and us. Old and
new are of one length, and short enough to come in one piece.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from headrace_testing.postgres import Server


@contextmanager
def tampered(server: Server, old: bytes, new: bytes) -> Iterator[int]:
    """The port of a way to the server on which `old` becomes `new` in all that it answers."""
    assert len(old) == len(new)
    ends: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def accept() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                upstream = socket.create_connection((server.host, server.port))
                ends.extend((client, upstream))
                _pass(client, upstream, lambda data: data)
                _pass(upstream, client, lambda data: data.replace(old, new))

        thread = threading.Thread(target=accept, name="tampering")
        thread.start()
        yield listener.getsockname()[1]
        # Wakes the thread, which a close alone would leave waiting.
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    for end in ends:
        end.close()


def _pass(source: socket.socket, target: socket.socket, change: Callable[[bytes], bytes]) -> None:
    """Pass on what comes, until one end is gone."""

    def run() -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(change(data))
            target.shutdown(socket.SHUT_WR)

    threading.Thread(target=run, name="tampering-pass", daemon=True).start()
