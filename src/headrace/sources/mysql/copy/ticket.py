"""The ticket of a snapshot: the names of the user-level locks by which a leader and its readers meet.

No connection travels between processes, so whoever is to see the same moment meets at the server. The server
frees what a session holds when it ends, however it ends, so nobody is waited for who is dead.

    leader               held by the leader for as long as its snapshot lasts
    place N              held by a reader that is there; places are taken in turn
    gate N               held by the leader until the tables are locked: the reader of place N waits for it
    view N               held by a reader that has opened its snapshot behind the gate
    member CONNECTION    held by the leader: it saw that connection's view while the tables were locked
    closed               held by the leader after all members: who is none by then is left out
    unlocked TABLE       held by the leader: the table was not there to be locked, so that no view is right

Names are 64 characters at most, and letter case means nothing in them. Only what the leader's own connection
holds counts as the leader's. A ticket travels as JSON.
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
        """A ticket of chance for so many readers."""
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
