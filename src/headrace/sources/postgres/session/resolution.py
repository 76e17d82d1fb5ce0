"""Names of hosts, resolved before libpq is asked: it would hold Python's lock until a name server answers.

    host=db port=5432   ──►   host=db,db hostaddr=10.0.0.1,fd00::1 port=5432,5432

libpq tries the addresses in this order, as it would by itself, and goes on knowing the name, by which a
certificate is judged and a password file is read. A name that takes longer than a connection may is given up;
its thread ends when the system's resolver does, and whoever asks for the name meanwhile waits for that one.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate

from headrace.sources.shared.refusals import Unreachable

_PORT = "5432"
_lock = threading.Lock()
_asked: dict[tuple[str, str], Future[list[str]]] = {}  # names whose answer is awaited


def resolve_hosts(parameters: Mapping[str, str], where: str, seconds: float) -> dict[str, str]:
    """The parameters of a connection with the addresses of its hosts, asked for within so many seconds.

    Raises `Unreachable` where none of the hosts has an address; `where` is the safe address, for its message.
    """
    said = dict(parameters)
    hosts = said.get("host") or os.environ.get("PGHOST", "")
    elsewhere = {"hostaddr", "service"} & said.keys() or {"PGSERVICE", "PGHOSTADDR"} & os.environ.keys()
    if elsewhere or not hosts:
        return said
    ports = (said.get("port") or os.environ.get("PGPORT") or _PORT).split(",")
    names = hosts.split(",")
    if len(ports) not in (1, len(names)) or all(map(_is_address, names)):
        return said
    found: list[tuple[str, str, str]] = []
    complaints = []
    for number, name in enumerate(names):
        port = ports[number % len(ports)] or _PORT
        try:
            addresses = [""] if _is_address(name) else _addresses(name, port, seconds)
            found += [(name, address, port) for address in addresses]
        except TooLate:  # before the other: it may be one of these
            complaints.append(f'the name "{name}" was not resolved within {seconds:g} s')
        except OSError as error:
            complaints.append(f'the name "{name}" has no address: {error.strerror}')
        except ValueError:
            complaints.append(f'"{name}" is no name of a host')
    if not found:
        raise Unreachable(
            "PG_UNREACHABLE",
            f'no connection to "{where}"',
            detail="; ".join(complaints),
            hint="check host and port, and that the server is running and reachable from here",
        )
    listed = (",".join(column) for column in zip(*found, strict=True))
    return said | dict(zip(("host", "hostaddr", "port"), listed, strict=True))


def _is_address(host: str) -> bool:
    """Tell whether there is nothing to resolve: an address, or the folder of a Unix socket."""
    if not host or host.startswith(("/", "@")):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _addresses(host: str, port: str, seconds: float) -> list[str]:
    with _lock:
        answer = _asked.get((host, port))
        if answer is None:
            answer = _asked[host, port] = Future()
            threading.Thread(
                target=_ask, args=(host, port, answer), name="headrace-names", daemon=True
            ).start()
    return answer.result(seconds)


def _ask(host: str, port: str, answer: Future[list[str]]) -> None:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        addresses = list(dict.fromkeys(str(place[0]) for *_, place in found))
    except (OSError, ValueError) as error:  # the latter of a label that is empty or too long
        answer.set_exception(error)
    else:
        answer.set_result(addresses)
    finally:
        with _lock:
            _asked.pop((host, port), None)


def _forget() -> None:
    """Begin anew in a child: its parent's threads are not here, and may have held the lock."""
    global _lock
    _lock = threading.Lock()
    _asked.clear()


os.register_at_fork(after_in_child=_forget)
