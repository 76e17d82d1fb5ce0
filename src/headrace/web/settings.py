"""The settings of the web server: its address, its host names, its token.

    settings("127.0.0.1:9464")                               loopback: it needs no token
    settings("0.0.0.0:9464", token="...")                    others can reach it: it needs a token
    settings("127.0.0.1:9464", hosts=["mirror.example"])     behind a proxy that keeps the name

Bad settings raise before anything listens. The token is never printed.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.core.durations import duration
from headrace.core.errors import Misconfigured

DEFAULT_LISTEN = "127.0.0.1:9464"
DEFAULT_READY_LAG = "5m"
TOKEN_VARIABLE = "HEADRACE_WEB_TOKEN"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
BACKLOG = 512
_NAME = re.compile(r"[0-9A-Za-z.:_%-]{1,253}\Z")


@dataclass(frozen=True, slots=True)
class Settings:
    """The address to listen at, the host names that a request may use, the token that it must show."""

    host: str
    port: int
    names: frozenset[str]
    token: str | None = field(default=None, repr=False)
    ready_lag: float = 300.0


def settings(
    listen: str, hosts: Iterable[str] = (), token: str | None = None, ready_lag: str = DEFAULT_READY_LAG
) -> Settings:
    """Parse the settings; an address that others can reach needs a token."""
    host, port = _parse(listen)
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token != ""):
        raise Misconfigured(
            "WEB_TOKEN_MALFORMED",
            "the token of the web server is empty or has characters that no header can carry",
            hint=f"give {TOKEN_VARIABLE} printable ASCII characters, such as from: openssl rand -hex 32",
        )
    if token is None and not _is_loopback(host):
        raise Misconfigured(
            "WEB_TOKEN_MISSING",
            f'others can reach "{listen}", and there is no token',
            hint=f"set {TOKEN_VARIABLE} (openssl rand -hex 32) or listen at {DEFAULT_LISTEN}",
        )
    names = frozenset(bare(name) for name in (host, *_LOOPBACK, *hosts))
    return Settings(host, port, names, token, duration(ready_lag, "ready_lag").total_seconds())


def bare(name: str) -> str:
    """A host's name for comparison: in lower case, without port, brackets and final dot."""
    name = name.strip().lower()
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0]
    return name.rstrip(".")


def listener(settings: Settings) -> socket.socket:
    """Listen at the address; raise an error with a code if that fails."""
    try:
        family, _, _, _, address = _resolve(settings.host, settings.port)[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(BACKLOG)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
    except OSError as error:
        raise _refused_error(f"{settings.host}:{settings.port}", error) from None
    return sock


def _parse(listen: str) -> tuple[str, int]:
    host, separator, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    number = int(port) if port.isascii() and port.isdigit() and len(port) <= 5 else -1
    if not separator or not host or not _NAME.match(host) or not 0 <= number <= 65535:
        raise Misconfigured(
            "WEB_ADDRESS",
            f'"{listen}" is not an address to listen at',
            hint=f"write HOST:PORT, such as {DEFAULT_LISTEN} or [::1]:9464",
        )
    return host, number


def _resolve(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)  # type: ignore[return-value]


def _is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach the address."""
    try:
        places = _resolve(host, 0)
    except OSError as error:
        raise _refused_error(host, error) from None
    return all(ipaddress.ip_address(place[4][0].partition("%")[0]).is_loopback for place in places)


def _refused_error(where: str, error: OSError) -> Misconfigured:
    if error.errno == errno.EADDRINUSE:
        return Misconfigured(
            "WEB_PORT_TAKEN",
            f'another process listens at "{where}" already',
            hint="give another port with --listen, or end that process",
        )
    if error.errno in (errno.EACCES, errno.EPERM):
        return Misconfigured(
            "WEB_PORT_DENIED",
            f'this user may not listen at "{where}"',
            hint="give a port from 1024 on with --listen",
        )
    return Misconfigured(
        "WEB_ADDRESS_FOREIGN",
        f'"{where}" is not an address of this machine',
        detail=error.strerror,
        hint=f"give one of this machine's addresses with --listen, such as {DEFAULT_LISTEN}",
    )
