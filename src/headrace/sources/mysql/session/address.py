"""The address of a server, our user there, and the rules for the password, which only this object holds.

    mysql://user:password@host:3306/database?ssl-mode=VERIFY_IDENTITY&ssl-ca=/etc/ca.pem
    mariadb://user@/?socket=/run/mysqld/mysqld.sock

Both schemes are parsed alike. Every part may be percent-encoded, the database may be left out, and
`localhost` is reached by TCP. The options have the names that the servers' own programs use. An unknown
option is refused. Text that cannot be parsed is never quoted: it may be the password.

The password comes from a credential (`shared.credentials`), or from the URL, or MYSQL_PWD, or the section
`[client]` of the option file that `defaults-file=` names, in this order (`with_password`). No other option
file is read: a `~/.my.cnf` does not say for which server its password is. The files of TLS may have libpq's
names: `sslrootcert`, `sslcert`, `sslkey`.
"""

from __future__ import annotations

import configparser
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

from headrace.core.credential import Credential
from headrace.core.errors import Misconfigured
from headrace.sources.shared.credentials import password_of, second_password

if TYPE_CHECKING:  # it loads Arrow
    from headrace.sources.contract.mirror import Address

DEFAULT_PORT = 3306
CONNECT_SECONDS = 10
_SCHEMES = ("mysql", "mariadb")
_ODD_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_HOST = re.compile(r"[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+(?:%[A-Za-z0-9._-]+)?")


class SslMode(Enum):
    """MySQL's five modes: whether the connection is encrypted, and how the other end proves who it is."""

    DISABLED = "DISABLED"
    PREFERRED = "PREFERRED"
    REQUIRED = "REQUIRED"
    VERIFY_CA = "VERIFY_CA"
    VERIFY_IDENTITY = "VERIFY_IDENTITY"

    @property
    def verifies(self) -> bool:
        return self in (SslMode.VERIFY_CA, SslMode.VERIFY_IDENTITY)


@dataclass(frozen=True, slots=True)
class Tls:
    """The encryption of a connection, and its files."""

    mode: SslMode = SslMode.PREFERRED
    ca: str | None = None
    capath: str | None = None
    cert: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True, repr=False)
class MysqlAddress:
    """The address of a server and our account there; it holds the password and never shows it."""

    user: str
    host: str
    port: int = DEFAULT_PORT
    database: str | None = None
    password: str | None = field(default=None, repr=False)
    socket: str | None = None
    tls: Tls = Tls()
    connect_seconds: int = CONNECT_SECONDS
    asks_public_key: bool = False
    public_key: str | None = None  # the file of the server's RSA key
    defaults_file: str | None = None
    scheme: str = "mysql"
    credential: Credential | None = None

    @classmethod
    def of(cls, address: Address) -> MysqlAddress:
        """This address as the contract hands it back."""
        return address if isinstance(address, MysqlAddress) else cls.parse(address.text)

    @classmethod
    def parse(cls, text: str, credential: Credential | None = None) -> MysqlAddress:
        """Read `mysql://...` or `mariadb://...`."""
        try:
            address = _read(text)
        except ValueError:
            # `from None`: urllib quotes what it cannot read, and with it the password.
            raise Misconfigured(
                "MY_ADDRESS_MALFORMED",
                "the address cannot be read",
                detail="it is no URL of the form mysql://user:password@host:port/database?option=value",
                hint="write mysql://user@host:3306/ with special characters (/ ? # % @ :) of each part "
                "percent-encoded, and the password there or in MYSQL_PWD",
            ) from None
        if credential is not None and address.password is not None:
            raise second_password()
        return replace(address, credential=credential)

    @property
    def text(self) -> str:
        """The URL with its password as it is now: it travels sealed, and no message shows it."""
        return self._spell(self.password if self.credential is None else password_of(self.credential))

    def without_secrets(self) -> str:
        """The URL without its password: it may be stored."""
        return self._spell(None)

    def safe(self) -> str:
        """The address as messages show it: user@host:port/database."""
        place = self.socket or f"{_bracket(self.host)}:{self.port}"
        return f"{self.user}@{place}/{self.database or ''}"

    def with_password(self, environment: Mapping[str, str] | None = None) -> MysqlAddress:
        """Complete the address with the password that this machine supplies, so that it means the same
        on an executor, where nobody needs to have the file."""
        if self.password is not None or self.credential is not None:
            return self
        supplied = (os.environ if environment is None else environment).get("MYSQL_PWD")
        if supplied is None and self.defaults_file is not None:
            supplied = _password_of(self.defaults_file)
        return replace(self, password=supplied)

    def _spell(self, password: str | None) -> str:
        secret = "" if password is None else f":{_encode(password)}"
        place = "" if self.socket else f"{_host_in_url(self.host)}:{self.port}"
        options = "&".join(f"{name}={_encode(value)}" for name, value in _options_of(self))
        return (
            f"{self.scheme}://{_encode(self.user)}{secret}@{place}/{_encode(self.database or '')}"
            f"{'?' if options else ''}{options}"
        )

    def __repr__(self) -> str:
        return f"Address({self.safe()!r})"

    def __str__(self) -> str:
        return self.safe()


def _read(text: str) -> MysqlAddress:
    """Parse a URL; raises ValueError if that fails."""
    if _CONTROL.search(text) or (not text.isascii() and not text.isprintable()):
        raise ValueError
    parts = urlsplit(text)
    scheme = parts.scheme.lower()
    # An "@" or ":" in a wrong place comes from a password that was not encoded.
    if scheme not in _SCHEMES or parts.fragment or "#" in text or re.search("[@:/]", parts.path[1:]):
        raise ValueError
    userinfo, _, _ = parts.netloc.rpartition("@")
    user, colon, password = userinfo.partition(":")
    if not user or "@" in userinfo:
        raise ValueError
    options = _options(parts.query)
    host, socket = _place(parts.netloc.rpartition("@")[2], parts.hostname, options)
    return MysqlAddress(
        user=_decode(user),
        host=host,
        port=parts.port or DEFAULT_PORT,
        database=_decode(parts.path[1:]) or None,
        password=_decode(password) if colon else None,
        socket=socket,
        tls=_tls(options),
        connect_seconds=_seconds(options.get("connect-timeout")),
        asks_public_key=_switch(options.get("get-server-public-key")),
        public_key=options.get("server-public-key-path"),
        defaults_file=options.get("defaults-file"),
        scheme=scheme,
    )


def _place(netloc: str, hostname: str | None, options: Mapping[str, str]) -> tuple[str, str | None]:
    """The host, and the socket's path, which may be in the host's place or an option."""
    socket = options.get("socket")
    name = _decode(netloc)
    if name.startswith("/"):
        if socket is not None:
            raise ValueError
        socket = name
    if socket is not None:
        if not socket.startswith("/") or name not in ("", "localhost", socket):
            raise ValueError
        return "localhost", socket
    host = _decode(hostname or "")
    if not _HOST.fullmatch(host):
        raise ValueError
    return host, None


def _decode(text: str) -> str:
    if _ODD_PERCENT.search(text):
        raise ValueError
    decoded = unquote(text, errors="strict")
    if _CONTROL.search(decoded):
        raise ValueError
    return decoded


def _encode(text: str) -> str:
    return quote(text, safe="")


def _bracket(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _host_in_url(host: str) -> str:
    return _bracket(host.replace("%", "%25"))


# libpq's names of what both have.
_ALIASES = {"sslrootcert": "ssl-ca", "sslcert": "ssl-cert", "sslkey": "ssl-key"}

_OPTIONS = (
    "socket",
    "ssl-mode",
    "ssl-ca",
    "ssl-capath",
    "ssl-cert",
    "ssl-key",
    "connect-timeout",
    "get-server-public-key",
    "server-public-key-path",
    "defaults-file",
)


def _options(query: str) -> dict[str, str]:
    """The options by name; `_` means `-`, as in the servers' programs."""
    options: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.partition("=")
        name = _decode(name).lower().replace("_", "-")
        name = _ALIASES.get(name, name)
        # Don't quote it: it may be the end of a password with a "?" in it.
        if name not in _OPTIONS:
            raise _bad_option("the address has an option that nobody knows")
        if name in options:
            raise _bad_option(f'the address gives the option "{name}" twice')
        options[name] = _decode(value)
    return options


def _tls(options: Mapping[str, str]) -> Tls:
    wanted = options.get("ssl-mode")
    ca, capath = options.get("ssl-ca"), options.get("ssl-capath")
    if wanted is None:
        # As in the mysql program: if the user names an authority, its certificates are required.
        mode = SslMode.VERIFY_CA if ca or capath else SslMode.PREFERRED
    elif wanted.upper() in SslMode.__members__:
        mode = SslMode[wanted.upper()]
    else:
        raise _bad_option('the option "ssl-mode" is none of ' + ", ".join(SslMode.__members__))
    if (ca or capath) and not mode.verifies:
        raise _bad_option(f"an authority is named, and ssl-mode={mode.value} does not ask it")
    tls = Tls(mode, ca, capath, options.get("ssl-cert"), options.get("ssl-key"))
    if tls.key and not tls.cert:
        raise _bad_option('the option "ssl-key" is of no use without "ssl-cert"')
    return tls


def _seconds(text: str | None) -> int:
    if text is None:
        return CONNECT_SECONDS
    if not re.fullmatch("[0-9]{1,4}", text) or not int(text):
        raise _bad_option('the option "connect-timeout" is no number of seconds')
    return int(text)


def _switch(text: str | None) -> bool:
    if text is None or text.lower() in ("0", "off", "false"):
        return False
    if text.lower() in ("", "1", "on", "true"):
        return True
    raise _bad_option('the option "get-server-public-key" is neither 0 nor 1')


def _bad_option(primary: str) -> Misconfigured:
    return Misconfigured(
        "MY_ADDRESS_OPTION",
        primary,
        hint="the options are " + ", ".join(_OPTIONS) + "; a ? or & in a password is written %3F or %26",
    )


def _options_of(address: MysqlAddress) -> list[tuple[str, str]]:
    """The options that differ from their defaults, in a fixed order."""
    tls = address.tls
    mode = None if tls.mode is _tls({"ssl-ca": tls.ca or tls.capath or ""}).mode else tls.mode.value
    said = {
        "socket": address.socket,
        "ssl-mode": mode,
        "ssl-ca": tls.ca,
        "ssl-capath": tls.capath,
        "ssl-cert": tls.cert,
        "ssl-key": tls.key,
        "connect-timeout": None
        if address.connect_seconds == CONNECT_SECONDS
        else str(address.connect_seconds),
        "get-server-public-key": "1" if address.asks_public_key else None,
        "server-public-key-path": address.public_key,
        "defaults-file": address.defaults_file,
    }
    return [(name, value) for name, value in said.items() if value is not None]


def _password_of(path: str) -> str | None:
    """The password in an option file's section for clients; None if it has none."""
    parser = configparser.ConfigParser(
        allow_no_value=True, interpolation=None, strict=False, comment_prefixes=("#", ";")
    )
    try:
        lines = Path(path).expanduser().read_text(encoding="utf-8").splitlines()
        # Skip the directives that include other files: these may not exist here.
        parser.read_string("\n".join(line for line in lines if not line.lstrip().startswith("!")))
    except (OSError, ValueError, configparser.Error):
        # `from None`: the parser quotes the bad line.
        raise Misconfigured(
            "MY_OPTION_FILE",
            "the option file with the password cannot be read",
            detail=f'defaults-file = "{path}"',
            hint="give the path of a file with the lines [client] and password=..., or set MYSQL_PWD",
        ) from None
    value = parser.get("client", "password", fallback=None)
    return value if value is None else _unquote(value)


_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "r": "\r", "\\": "\\", "s": " "}


def _unquote(value: str) -> str:
    """A value as the servers' programs read it: within quotes, or up to a comment, with their escapes."""
    within = re.fullmatch(r"""(["'])(.*?)\1\s*(#.*)?""", value)
    value = within[2] if within else value.partition("#")[0].rstrip()
    return re.sub(r"\\([btnr\\s])", lambda found: _ESCAPES[found[1]], value)
