"""The address of a source and our user there: the only object that holds the password.

It is parsed from the text that a person typed, passed to every connection, and stored without its secrets.
libpq's messages about a malformed connection string quote the string, so they are never passed on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.core.credential import Credential
from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.statements import Session
from headrace.sources.shared.credentials import password_of, second_password

if TYPE_CHECKING:  # it loads Arrow
    from headrace.sources.contract.mirror import Address

_URL = re.compile(r"postgres(?:ql)?://([^?]*)")
_SERVICE = ("service", "servicefile")  # names in a file of this machine
_SECURITY = ("ssl", "require_auth", "channel_binding", "target_session_attrs")
_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresAddress:
    """The address of a source and our user there; it holds the password and never shows it."""

    conninfo: str = field(repr=False)
    credential: Credential | None = None

    @classmethod
    def of(cls, address: Address) -> PostgresAddress:
        """This address as the contract hands it back."""
        return address if isinstance(address, PostgresAddress) else cls.parse(address.text)

    @classmethod
    def parse(cls, text: str, credential: Credential | None = None) -> PostgresAddress:
        """Read `postgresql://...` or `host=... dbname=...`."""
        if _is_split_wrongly(text):
            raise _malformed_error()
        try:
            parameters = conninfo_to_dict(text)
        except psycopg.Error:
            raise _malformed_error() from None  # libpq quotes the string, and with it the password
        if credential is not None and "password" in parameters:
            raise second_password()
        return cls(make_conninfo(**{key: str(value) for key, value in parameters.items()}), credential)

    @property
    def text(self) -> str:
        """The connection string with its secrets of now: it travels sealed, and no message shows it."""
        if self.credential is None:
            return self.conninfo
        return self.with_password(password_of(self.credential)).conninfo

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters of the connection string, the password included: never for a message."""
        return {key: str(value) for key, value in conninfo_to_dict(self.conninfo).items()}

    def safe(self) -> str:
        """The address as messages show it: user@host:port/database."""
        said = self.parameters
        user = f"{said['user']}@" if "user" in said else ""
        host = said.get("host") or said.get("hostaddr") or "local"
        port = f":{said['port']}" if "port" in said else ""
        return f"{user}{host}{port}/{said.get('dbname', said.get('user', ''))}"

    def without_secrets(self) -> str:
        """The connection string without its secrets: it may be stored."""
        said = self.parameters
        return make_conninfo(**{key: said[key] for key in said if key not in _SECRETS})

    def with_password(self, password: str) -> PostgresAddress:
        return PostgresAddress(make_conninfo(self.conninfo, password=password))

    def with_environment(self, connection: Session) -> PostgresAddress:
        """Complete the address with what this machine's environment supplied (PGPASSWORD, a password
        file, a service, PGHOST, PGSSLMODE ...), so that it means the same on an executor."""
        info = connection.info
        said = {key: value for key, value in self.parameters.items() if key not in _SERVICE}
        said.update({"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname})
        said.update(_security(connection.pgconn))
        if info.password and self.credential is None:
            said["password"] = info.password
        return replace(self, conninfo=make_conninfo(**said))

    def __repr__(self) -> str:
        return f"Address({self.safe()!r})"

    def __str__(self) -> str:
        return self.safe()


def _malformed_error() -> Misconfigured:
    return Misconfigured(
        "PG_ADDRESS_MALFORMED",
        "the connection string cannot be read",
        detail="it is neither a postgresql:// URL nor a list of key=value pairs that libpq knows",
        hint="write postgresql://user@host:5432/database, with special characters of the password "
        "percent-encoded (@ as %40, / as %2F), or host=... port=... user=... dbname=...",
    )


def _is_split_wrongly(text: str) -> bool:
    """Tell whether libpq would take a part of a password for the host, which messages show.

    It takes a password to end at the first @ or slash.
    """
    url = _URL.match(text)
    if url is None:
        return False
    login, _, rest = url[1].partition("/")
    return login.count("@") > 1 or "@" in rest


def _security(pgconn: pq.abc.PGconn) -> dict[str, str]:
    """The options of TLS and of the login that differ from libpq's own, wherever they were said."""
    return {
        option.keyword.decode(): option.val.decode()
        for option in pgconn.info
        if option.val is not None
        and option.val != option.compiled
        and option.keyword.decode().startswith(_SECURITY)
    }
