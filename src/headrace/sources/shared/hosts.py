"""Resolve the names of hosts, within a time limit, anew for each connection.

The system's resolver may take a minute where a name server is silent, and nothing can end its call: it runs
in a thread, which goes on until the resolver returns. Callers who need the same name meanwhile wait for the
same thread. No answer is kept: a name that leads elsewhere after a failover is followed at the next
connection.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate

_lock = threading.Lock()
_asked: dict[tuple[str, str], Future[list[str]]] = {}  # names that are being resolved


class HostUnknown(Exception):
    """A name has no address, or none within the time limit; the text says which."""


def is_address(host: str) -> bool:
    """Tell whether a host needs no resolving: it is an address, or the folder of a Unix socket."""
    if not host or host.startswith(("/", "@")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def addresses_of(host: str, port: str, seconds: float) -> list[str]:
    """Return the addresses of a name, in the resolver's order; raise `HostUnknown` without one."""
    with _lock:
        answer = _asked.get((host, port))
        if answer is None:
            answer = _asked[host, port] = Future()
            threading.Thread(
                target=_ask, args=(host, port, answer), name="headrace-names", daemon=True
            ).start()
    try:
        return answer.result(seconds)
    except TooLate:  # first, since it may be an OSError
        raise HostUnknown(f'the name "{host}" was not resolved within {seconds:g} s') from None
    except OSError as error:
        raise HostUnknown(f'the name "{host}" has no address: {error.strerror}') from None
    except ValueError:
        raise HostUnknown(f'"{host}" is no name of a host') from None


def _ask(host: str, port: str, answer: Future[list[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    except (OSError, ValueError) as error:  # ValueError: a label is empty or too long
        _forget_question(host, port)
        answer.set_exception(error)
    else:
        _forget_question(host, port)
        answer.set_result(addresses)


def _forget_question(host: str, port: str) -> None:
    """Let the next caller ask anew; before the answer is told, or that caller may get this one."""
    with _lock:
        _asked.pop((host, port), None)


def _forget() -> None:
    """Start afresh after a fork: the parent's threads are gone, and may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _asked.clear()


os.register_at_fork(after_in_child=_forget)
