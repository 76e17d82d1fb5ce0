"""The PostgreSQL behind a session of the contract, for callers above that still ask it themselves."""

from __future__ import annotations

from typing import cast

from headrace.sources.contract import session as contract
from headrace.sources.postgres.session.address import Address
from headrace.sources.postgres.session.identity import Identity
from headrace.sources.postgres.session.statements import Session
from headrace.sources.postgres.source import PostgresSession


def connection_of(session: contract.Session) -> Session:
    """The connection of a session."""
    return cast(PostgresSession, session).connection


def identity_of(session: contract.Session) -> Identity:
    """The server that a session reached."""
    return cast(PostgresSession, session).found


def address_of(address: contract.Address) -> Address:
    """An address as PostgreSQL's."""
    return Address(address.text)
