"""The address of a source and our user there: the only object that holds the password.

It is parsed from the text that a person typed, passed to every connection, and stored without its secrets.
libpq's messages about a malformed connection string quote the string, so they are never passed on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.core.errors import Misconfigured
from headrace.sources.postgres.session.statements import Session

_SECRETS = ("password", "sslpassword", "oauth_client_secret", "scram_client_key", "scram_server_key")


@dataclass(frozen=True, slots=True, repr=False)
class PostgresAddress:
    """The address of a source and our user there; it holds the password and never shows it."""

    conninfo: str = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> PostgresAddress:
        """Read `postgresql://...` or `host=... dbname=...`."""
        try:
            parameters = conninfo_to_dict(text)
        except psycopg.Error:
            # `from None`: libpq quotes the string, and with it the password.
            raise Misconfigured(
                "PG_ADDRESS_MALFORMED",
                "the connection string cannot be read",
                detail="it is neither a postgresql:// URL nor a list of key=value pairs that libpq knows",
                hint="write postgresql://user@host:5432/database, with special characters of the "
                "password percent-encoded, or host=... port=... user=... dbname=...",
            ) from None
        return cls(make_conninfo(**{key: str(value) for key, value in parameters.items()}))

    @property
    def text(self) -> str:
        """The connection string with its secrets: it travels sealed, and no message shows it."""
        return self.conninfo

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

    def with_environment(self, connection: Session) -> PostgresAddress:
        """Complete the address with what this machine's environment supplied (PGPASSWORD, a password
        file, PGHOST ...), so that it means the same on an executor."""
        info = connection.info
        said = self.parameters
        said.update({"host": info.host, "port": str(info.port), "user": info.user, "dbname": info.dbname})
        if info.password:
            said["password"] = info.password
        return PostgresAddress(make_conninfo(**said))

    def __repr__(self) -> str:
        return f"Address({self.safe()!r})"

    def __str__(self) -> str:
        return self.safe()
