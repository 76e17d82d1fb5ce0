"""Imitate a pooler as it looks from outside: login names another backend than the one that answers.

It forwards one connection to a real server and changes the process number in BackendKeyData, as every
pooler does, since a pooler has cancel keys of its own.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def pooler(host: str, port: int) -> Iterator[int]:
    """The port of a pooler in front of that server, good for one connection without TLS."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(10)
        thread = threading.Thread(target=_serve, args=(listener, host, port), daemon=True)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)


def _serve(listener: socket.socket, host: str, port: int) -> None:
    client, _ = listener.accept()
    with client, socket.create_connection((host, port)) as server:
        upward = threading.Thread(target=_forward, args=(client, server), daemon=True)
        upward.start()
        _login(server, client)
        _forward(server, client)


def _login(server: socket.socket, client: socket.socket) -> None:
    """Forward message by message until BackendKeyData has passed."""
    kind = b""
    while kind != b"K":
        head = server.recv(5, socket.MSG_WAITALL)
        body = server.recv(struct.unpack(">i", head[1:])[0] - 4, socket.MSG_WAITALL)
        kind = head[:1]
        if kind == b"K":
            body = struct.pack(">i", struct.unpack(">i", body[:4])[0] + 1) + body[4:]
        client.sendall(head + body)


def _forward(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the other direction has ended the connection
