"""The ticket of a snapshot: the names of the user-level locks by which a leader and its readers meet.

A connection can't be passed between processes, so those who are to see the same moment meet at the server.
The server frees a session's locks when it ends, however it ends. So nobody waits for a process that is gone.

    leader               held by the leader for as long as its snapshot lasts
    place N              held by a reader that has come; the lowest free place is taken first
    gate N               held by the leader until the tables are locked: the reader of place N waits for it
    view N               held by a reader that has opened its snapshot behind the gate
    member CONNECTION    held by the leader: it saw that connection's view while the tables were locked
    closed               held by the leader after all members: a reader that is no member then is left out
    unlocked TABLE       held by the leader: the table could not be locked, so no view of it is right

Names have at most 64 characters, and their case does not matter. A lock counts as the leader's only if the
leader's own connection holds it. A ticket travels as JSON.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass

from headrace.core.names import TableName
from headrace.core.records import from_record
from headrace.sources.contract.values import Json
from headrace.sources.mysql.catalog.table_def import table_number


@dataclass(frozen=True, slots=True)
class Ticket:
    """The meeting point of the readers of one snapshot and their leader."""

    name: str
    connection: int  # the leader's
    readers: int

    @classmethod
    def new(cls, connection: int, readers: int) -> Ticket:
        """Make a ticket with a random name, for this many readers."""
        return cls(secrets.token_hex(12), connection, readers)

    @classmethod
    def of(cls, record: Json) -> Ticket:
        return from_record(cls, record)

    @property
    def leader(self) -> str:
        return self._lock("leader")

    @property
    def closing_lock(self) -> str:
        return self._lock("closed")

    def place(self, number: int) -> str:
        return self._lock(f"place:{number}")

    def gate(self, number: int) -> str:
        return self._lock(f"gate:{number}")

    def view(self, number: int) -> str:
        return self._lock(f"view:{number}")

    def member(self, connection: int) -> str:
        return self._lock(f"in:{connection}")

    def unlock_name(self, table: TableName) -> str:
        return self._lock(f"un:{table_number(table)}")

    def _lock(self, what: str) -> str:
        return f"headrace:{self.name}:{what}"
