"""A queue on a real server, its triggers on some tables, and what they wrote, held against the tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from headrace.core.names import TableName
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session
from headrace.sources.queue import capture
from headrace.sources.queue.creation import ensure_queue
from headrace.sources.queue.statements import EMPTIED
from headrace.sources.queue.upstream import QueueUpstream
from headrace_testing.postgres import Database

LAKE = QueueUpstream("headrace", "main", "headrace_1234abcd_main")
# As numbers, which the decoder makes by itself.
_COLUMNS = (
    "((id - '0/0')::bigint >> 3) << 16 | (tx::text::bigint & 65535) AS id, tx::text::bigint AS tx,"
    " relation, leaf, diff, row"
)
EVENTS = " UNION ALL ".join(f"SELECT {_COLUMNS} FROM {table}" for table in LAKE.objects.events)


@dataclass(frozen=True, slots=True)
class Capturing:
    """The queue of a database, over a session as headrace has it."""

    database: Database
    session: Session

    def capture(self, *names: str) -> None:
        """Put triggers on tables of the schema public; their contents by now are of no interest."""
        found = capture.capture(self.session, LAKE, [TableName("public", name) for name in names])
        assert found.errors == {}
        assert len(found.fit) == len(names)
        for table in LAKE.objects.events:
            self.session.execute(f"TRUNCATE {table}".encode())

    def events(self, name: str) -> list[tuple[int, int, str | None]]:
        """The events of a table: the writer, what happened, the row."""
        rows = self.session.execute(
            f"SELECT tx, diff, row FROM ({EVENTS}) e WHERE relation = %s::regclass ORDER BY id".encode(),
            [f"public.{name}"],
        )
        return [(tx, diff, row) for tx, diff, row in rows.fetchall()]

    def net(self, name: str) -> Counter[str | None]:
        """Add up a table's events alone, which begin while it is empty."""
        held: Counter[str | None] = Counter()
        for _, diff, row in self.events(name):
            if diff == EMPTIED:
                held.clear()
            elif row is not None:
                held[row] += diff
        return Counter({row: count for row, count in held.items() if count})

    def contents(self, name: str) -> Counter[str | None]:
        """Read the table's rows, as our own sessions print them."""
        rows = self.session.execute(f"SELECT (t.*)::text FROM ONLY public.{name} t".encode())
        return Counter(row for (row,) in rows.fetchall())

    def agree(self, *names: str) -> None:
        """The events of these tables make what the tables hold."""
        for name in names:
            assert self.net(name) == self.contents(name), name


def url(database: Database, user: str) -> str:
    """The address for one of the users; those that tests make have the password "pw"."""
    password = None if user in ("app", "postgres") else "pw"
    return database.server.url(database.name, user=user, password=password)


@contextmanager
def capturing(database: Database, user: str = "app") -> Iterator[Capturing]:
    """A queue that belongs to this user."""
    with closing(connect(PostgresAddress.parse(url(database, user)), role="test")) as session:
        ensure_queue(session, LAKE.objects)
        yield Capturing(database, session)


def executed(database: Database, statements: Sequence[str], user: str = "app") -> None:
    """Run statements one after another, in one session, each of which commits."""
    with database.connect(user=user) as connection:
        for statement in statements:
            connection.execute(statement.encode())
