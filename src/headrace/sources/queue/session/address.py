"""The address of a queue: a PostgreSQL address whose scheme says that the database is mirrored by triggers.

The scheme is kept wherever the address is stored: without it the address would mean logical replication.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from headrace.core.credential import Credential
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.statements import Session

if TYPE_CHECKING:  # it loads Arrow
    from headrace.sources.contract.mirror import Address

_PREFIX = "queue+"


@dataclass(frozen=True, slots=True, repr=False)
class QueueAddress:
    """The address of a queue's server; connections use `server`."""

    server: PostgresAddress

    @classmethod
    def of(cls, address: Address) -> QueueAddress:
        """This address as the contract hands it back."""
        return address if isinstance(address, QueueAddress) else cls.parse(address.text)

    @classmethod
    def parse(cls, text: str, credential: Credential | None = None) -> QueueAddress:
        """Read `queue+postgresql://...`, or a stored address."""
        return cls(PostgresAddress.parse(text.removeprefix(_PREFIX), credential))

    @property
    def text(self) -> str:
        """The whole address with its secrets: it travels sealed, and no message shows it."""
        return _url(self.server.text)

    def safe(self) -> str:
        """The address as messages show it: user@host:port/database."""
        return self.server.safe()

    def without_secrets(self) -> str:
        """The address without its secrets: it may be stored."""
        return _url(self.server.without_secrets())

    def with_environment(self, connection: Session) -> QueueAddress:
        """Complete the address with what this machine's environment supplied."""
        return QueueAddress(self.server.with_environment(connection))

    def __repr__(self) -> str:
        return f"QueueAddress({self.safe()!r})"

    def __str__(self) -> str:
        return self.safe()


def _url(conninfo: str) -> str:
    parameters = {key: str(value) for key, value in conninfo_to_dict(conninfo).items()}
    return f"{_PREFIX}postgresql://?{urlencode(parameters, quote_via=quote)}"
