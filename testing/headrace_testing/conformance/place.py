"""A source, as the list asks for it: a place to write, the codes of its errors, and what it lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.core.names import TableName
from headrace_testing.oracle.contract import Session
from headrace_testing.oracle.registry import oracle_of


class Place(Protocol):
    """A database, a user who owns it, and one who mirrors it."""

    @property
    def url(self) -> str:
        """The address as the user who mirrors it, with a password: he has the least privileges."""

    @property
    def owner_url(self) -> str:
        """The address as the owner, with a password."""

    @property
    def password(self) -> str | None:
        """The password in the addresses; None if they have none."""

    def table(self, name: str) -> TableName:
        """The table of that name, as the lake calls it."""

    def lose_position(self) -> None:
        """Make the source forget the part of its log that the mirror has not read. No mirror runs now."""

    def elsewhere(self) -> AbstractContextManager[Place]:
        """An empty place on another server."""

    def barred(self) -> AbstractContextManager[None]:
        """In the block, admit nobody by that address, and end its sessions."""

    def unreadable(self, table: str) -> AbstractContextManager[None]:
        """In the block, revoke the mirroring user's right to read this table."""


@dataclass(frozen=True, slots=True)
class SourceUnderTest:
    """A source, as the list asks for it.

    `lacks` names tests or cases that the source can't pass, each with the reason: they are skipped.
    """

    kind: str
    server: str  # a fixture: `place` takes its value
    place: Callable[[Any], AbstractContextManager[Place]]  # a database of its own, for a test or a scene
    lost: str  # the code when the position in the source's log is gone
    elsewhere: str  # the code when another server answers
    barred: str = ""  # the code when the server does not let the user in
    unreadable: str = ""  # the code when the user may not read a table
    of_many: bool = False  # a time is that of several transactions
    lacks: Mapping[str, str] = field(default_factory=dict)


def session(place: Place) -> AbstractContextManager[Session]:
    """A connection that writes there."""
    return oracle_of(place.url).session(place.owner_url)


def execute(place: Place, *statements: str) -> None:
    """Run statements as one transaction."""
    with session(place) as writer:
        for statement in statements:
            writer.execute(statement)
        writer.commit()
