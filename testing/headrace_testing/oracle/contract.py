"""The oracle: what tests may ask of a source's server, whichever it is.

    oracle.moment(url)             one state of the source: rows as text, keys; nothing moves meanwhile
    oracle.record(url, tables)     the rows of a state, and the position whose commits it shows
    oracle.session(url)            a connection that writes: statements, commit, rollback
    oracle.dialect                 how that server spells what all of them have
    oracle.login(url)              the address as `headrace` is given it, and its secret apart

A statement's values are `%s` or `%(name)s`, as the drivers of Python have it. An error of the server that a
writer must expect is `Disconnected` or `Rejected`; any other comes as the driver's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace_testing.canonical import Rows

Values = Sequence[Any] | Mapping[str, Any]


class Disconnected(Exception):
    """The server is down or the connection was cut: it may be back in a moment."""


class Rejected(Exception):
    """The server let another transaction go first: a deadlock, a key that was taken."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of the source's tables when exactly the commits below `position` had been done."""

    position: Position
    rows: Mapping[str, Rows]


class Moment(Protocol):
    """One state of the source."""

    def rows(self, table: TableName) -> Rows:
        """Read the rows of the table."""

    def key(self, table: TableName) -> tuple[str, ...]:
        """The columns of the table's primary key, in its order."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """A server's spelling of what every server has. `{t}` is a table, `{c}` a column, both quoted."""

    quote: str
    types: Mapping[str, str]  # by what a column is for: "text", "key_text", "moment", ...
    whole_rows: str  # makes changes of a table carry the whole old row; "" where they always do
    out_of_line: str  # keeps long values of a column apart from its row; "" where there is no such thing
    keyed: Sequence[str] = ()  # what happens to rows of `workload.Keyed`, a statement each; so the others
    bag: Sequence[str] = ()
    large: Sequence[str] = ()

    def quoted(self, name: str) -> str:
        return self.quote + name.replace(self.quote, self.quote * 2) + self.quote


class Session(Protocol):
    """A connection that writes: its transaction begins by itself and ends by `commit` or `rollback`."""

    @property
    def dialect(self) -> Dialect: ...

    def execute(self, statement: str, values: Values | None = None) -> None: ...

    def execute_many(self, statement: str, rows: Iterable[Sequence[Any]]) -> None: ...

    def rows(self, statement: str, values: Values | None = None) -> list[tuple[Any, ...]]: ...

    def make_counter(self, name: str) -> None:
        """Make something that counts upwards over all sessions, whatever is rolled back."""

    def next_number(self, counter: str) -> int: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Login:
    """An address without its secret, and the environment variables that say it."""

    address: str
    environment: Mapping[str, str]


class Oracle(Protocol):
    """A kind of server."""

    @property
    def dialect(self) -> Dialect: ...

    def moment(self, url: str) -> AbstractContextManager[Moment]: ...

    def record(self, url: str, tables: Iterable[str]) -> Recording:
        """Record what the source holds at one position, whatever is being written meanwhile."""

    def session(self, url: str) -> AbstractContextManager[Session]: ...

    def login(self, url: str) -> Login: ...
