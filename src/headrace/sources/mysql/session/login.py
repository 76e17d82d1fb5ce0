"""Login: PyMySQL logs in, and hands over the socket. The only importer of PyMySQL.

    socket ─► greeting ─► TLS, as the address asks ─► the account's method ─► OK ─► the socket is ours

`connection` imports it at the first login, so PyMySQL is needed only to mirror MySQL or MariaDB. It promises
never to send a stranger the password. Most methods send a proof that we know the password; some send the
password itself, and the other end chooses the method. So the password is sent only

    over a socket of this machine, or to a loopback address
    by TLS whose certificate was verified (VERIFY_CA, VERIFY_IDENTITY)
    by TLS that the address demands without verifying (REQUIRED): somebody decided that
    encrypted with the server's RSA key, where the address names it, or demands that the server be asked
                                          (server-public-key-path, get-server-public-key)

and never by default to another machine. `caching_sha2_password` sends it only at the first login after a
restart of the server. An account with this method is refused from the beginning, so that it does not fail
some night.

The login reads the socket without a buffer, so that no later byte is lost in one. The whole login has one
deadline. No files are sent (`LOAD DATA LOCAL`), and statements are sent one at a time.
"""

from __future__ import annotations

import re
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pymysql
from pymysql import _auth
from pymysql.constants import CLIENT, CR

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.sources.mysql.flavour import Release
from headrace.sources.mysql.session.address import MysqlAddress, SslMode, Tls
from headrace.sources.mysql.session.packets import PacketStream, ServerError
from headrace.sources.mysql.session.refusals import (
    driver_missing,
    login_refused,
    method_unknown,
    tls_refused,
    unreachable,
)
from headrace.sources.mysql.session.statements import LOGIN_SECONDS

# Errors of PyMySQL if the other end speaks another protocol.
_GIBBERISH = (struct.error, IndexError, ValueError, AssertionError, TypeError, pymysql.err.InternalError)
_METHOD = re.compile(r"plugin '?b?'?([A-Za-z0-9_]{1,64})")


@dataclass(frozen=True, slots=True)
class LoggedIn:
    """A connection that the server has accepted."""

    packets: PacketStream
    release: Release
    connection_id: int  # from the greeting: its lower 32 bits


def log_in(address: MysqlAddress, line: socket.socket, *, program: str) -> LoggedIn:
    """Log in over an open socket; close it if that fails."""
    try:
        login = _login(address, line, program)
        login.connect(line)
    except HeadraceError:
        line.close()
        raise
    except (pymysql.err.MySQLError, RuntimeError, OSError, *_GIBBERISH) as error:
        line.close()
        # `from None`: the error holds the data that was read and sent.
        raise _explained_error(address, error) from None
    return LoggedIn(
        PacketStream(login.take()),
        Release.of_greeting(login.server_version, login.server_capabilities),
        login.server_thread_id[0],
    )


def _login(address: MysqlAddress, line: socket.socket, program: str) -> _Login:
    return _Login(
        address,
        line,
        user=address.user,
        # PyMySQL would encode a str as latin1.
        password=(address.password or "").encode(),
        host=address.host,
        port=address.port,
        database=address.database,
        charset="utf8mb4",
        program_name=program,
        autocommit=None,
        local_infile=False,
        ssl_disabled=True,  # until the greeting: see `_get_server_information`
        server_public_key=Path(address.public_key).read_bytes() if address.public_key else None,
        auth_plugin_map=_METHODS,
        defer_connect=True,
        read_timeout=LOGIN_SECONDS,
        write_timeout=LOGIN_SECONDS,
    )


class _Login(pymysql.connections.Connection):
    """PyMySQL's connection, up to its login."""

    # Attributes that are private to PyMySQL, or missing in its types.
    server_version: str
    server_capabilities: int
    server_thread_id: tuple[int]
    _sock: Any
    _rfile: Any
    _auth_plugin_name: str

    def __init__(self, address: MysqlAddress, line: socket.socket, **options: Any) -> None:
        super().__init__(**options)
        self._address = address
        self._is_local = _is_local(line)
        self._deadline = time.monotonic() + LOGIN_SECONDS
        self._secure = line.family == socket.AF_UNIX

    def take(self) -> socket.socket:
        """Take the socket out: PyMySQL would close it when this object is gone."""
        line: socket.socket = self._sock
        self._rfile.close()
        self._sock = self._rfile = None
        return line

    def demand_trust(self) -> None:
        """Raise if the other end may be a stranger: the password would be sent now."""
        if self.password and not self._may_know_password():
            raise Misconfigured(
                "MY_PASSWORD_WITHHELD",
                f'the server at "{self._address.safe()}" asks for the password, and nothing shows who it is',
                detail="its account does not log in by a proof of the password alone",
                hint="add ?ssl-mode=VERIFY_IDENTITY&ssl-ca=FILE to the address, or, in a network that you "
                "trust, ?ssl-mode=REQUIRED",
            )

    def _may_know_password(self) -> bool:
        address = self._address
        if self._is_local:
            return True
        if self.ssl:
            return address.tls.mode is not SslMode.PREFERRED
        return address.asks_public_key or address.public_key is not None

    def _get_server_information(self) -> None:
        """Read the greeting; decide on TLS and on the first method."""
        super()._get_server_information()  # type: ignore[misc]
        if self._auth_plugin_name == "sha256_password":
            # PyMySQL would send the password at once. With this method the server asks for what it needs.
            self._auth_plugin_name = "caching_sha2_password"
        tls = self._address.tls
        is_offered = bool(self.server_capabilities & CLIENT.SSL)
        if tls.mode is SslMode.DISABLED or (self._secure and tls.mode is SslMode.PREFERRED):
            return
        if is_offered:
            self.ctx = _context(tls)
            self.ssl = self._ssl_required = True
            self.client_flag |= CLIENT.SSL
        elif tls.mode is not SslMode.PREFERRED:
            raise tls_refused(self._address.safe(), "the server offers no TLS")

    def _read_bytes(self, num_bytes: int) -> bytes:
        """Read exactly so many bytes, before the deadline of the login."""
        found = bytearray()
        while len(found) < num_bytes:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the server does not answer")
            self._sock.settimeout(left)
            piece = self._sock.recv(num_bytes - len(found))
            if not piece:
                raise pymysql.err.OperationalError(CR.CR_SERVER_LOST, "")
            found += piece
        return bytes(found)

    def set_character_set(self, charset: str, collation: str | None = None) -> None:
        """Do nothing: the character set is one of the pins."""


class _Sha2:
    """`caching_sha2_password`: a proof, or the password if the server has none cached."""

    def __init__(self, login: _Login) -> None:
        self.login = login

    def authenticate(self, packet: Any) -> Any:
        self.login.demand_trust()
        return self._answer(packet)

    def _answer(self, packet: Any) -> Any:
        return _auth.caching_sha2_password_auth(self.login, packet)


class _Sha256(_Sha2):
    """`sha256_password`: the password, each time."""

    def _answer(self, packet: Any) -> Any:
        return _auth.sha256_password_auth(self.login, packet)  # type: ignore[no-untyped-call]


class _Clear(_Sha2):
    """`mysql_clear_password`: the password, for a directory service behind the server; never unencrypted."""

    def _answer(self, packet: Any) -> Any:
        if not self.login._secure:
            raise method_unknown(self.login._address.safe(), "mysql_clear_password without TLS")
        self.login.write_packet(self.login.password + b"\0")
        return self.login._read_packet()  # type: ignore[no-untyped-call]


class _RefusedMethod(_Sha2):
    """A method that sends the password, or something as good, and that nobody needs."""

    def authenticate(self, packet: Any) -> Any:
        raise method_unknown(self.login._address.safe(), "dialog, or mysql_old_password")


_HUNG_UP = "the server hung up during the login"

_METHODS = {
    b"caching_sha2_password": _Sha2,
    b"sha256_password": _Sha256,
    b"mysql_clear_password": _Clear,
    b"dialog": _RefusedMethod,
    b"mysql_old_password": _RefusedMethod,
}


def _is_local(line: socket.socket) -> bool:
    if line.family not in (socket.AF_INET, socket.AF_INET6):
        return True
    reached = ip_address(str(line.getpeername()[0]).partition("%")[0])
    mapped = getattr(reached, "ipv4_mapped", None)
    return bool((mapped or reached).is_loopback)


def _context(tls: Tls) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = tls.mode is SslMode.VERIFY_IDENTITY
    context.verify_mode = ssl.CERT_REQUIRED if tls.mode.verifies else ssl.CERT_NONE
    # The certificates of authorities that servers generate do not meet this flag's rules.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if tls.ca or tls.capath:
        context.load_verify_locations(tls.ca, tls.capath)
    elif tls.mode.verifies:
        context.load_default_certs()
    if tls.cert:
        # Without this, OpenSSL would ask at the terminal for the password of a key.
        context.load_cert_chain(tls.cert, tls.key, password=lambda: b"")
    return context


def _explained_error(address: MysqlAddress, error: Exception) -> HeadraceError:
    """The coded error of a failed login."""
    where = address.safe()
    if isinstance(error, RuntimeError):
        return driver_missing("cryptography" if "cryptography" in str(error) else "PyNaCl")
    if isinstance(error, pymysql.err.OperationalError) and hasattr(error, "original_exception"):
        error = error.original_exception
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ssl.SSLSyscallError):
        return unreachable(where, _HUNG_UP)  # no refusal: the connection was lost
    if isinstance(error, ssl.SSLError):
        reason = (
            getattr(error, "verify_message", "") or getattr(error, "reason", "") or "the handshake failed"
        )
        return tls_refused(where, reason)
    if isinstance(error, OSError):
        return _of_system(address, error)
    if not isinstance(error, pymysql.err.MySQLError) or isinstance(error, pymysql.err.InternalError):
        return Misconfigured(
            "MY_PROTOCOL_UNKNOWN",
            f'what answers at "{where}" does not speak as MySQL and MariaDB do',
            hint="check host and port; MySQL's other protocol, on 33060, is not meant",
        )
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    message = str(error.args[1]) if len(error.args) > 1 else ""
    if number in (CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR):
        return unreachable(where, _HUNG_UP)
    if number == CR.CR_AUTH_PLUGIN_CANNOT_LOAD:
        name = _METHOD.search(message)
        return method_unknown(where, f'it is "{name[1]}"' if name else "")
    state = getattr(error, "sqlstate", None) or ""
    return login_refused(where, ServerError(number, state, message), password=address.password)


def _of_system(address: MysqlAddress, error: OSError) -> HeadraceError:
    named = [path for path in (address.public_key, address.tls.ca, address.tls.cert, address.tls.key) if path]
    if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) and named:
        return tls_refused(address.safe(), f"a file that the address names cannot be read: {error.strerror}")
    return unreachable(address.safe(), error.strerror or "the server does not answer")
