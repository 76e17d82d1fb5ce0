"""The address of a queue: a PostgreSQL's, whose scheme says that it is mirrored by triggers.

The scheme stays with it wherever it is written down, or whoever reads it would take it for a PostgreSQL that
is followed by its log.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, urlencode

from psycopg.conninfo import conninfo_to_dict

from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.statements import Session

_PREFIX = "queue+"


@dataclass(frozen=True, slots=True, repr=False)
class QueueAddress:
    """The place of a queue's server, and our name there; `server` is what connections are made with."""

    server: PostgresAddress

    @classmethod
    def parse(cls, text: str) -> QueueAddress:
        """Read `queue+postgresql://...`, or what was made of it."""
        return cls(PostgresAddress.parse(text.removeprefix(_PREFIX)))

    @property
    def text(self) -> str:
        """All of it, secrets included: it travels sealed, and is in no message."""
        return _url(self.server.text)

    def safe(self) -> str:
        """The address as messages show it: user@host:port/database."""
        return self.server.safe()

    def without_secrets(self) -> str:
        """The address as it may be written down."""
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
