"""A receiver on a real database, and the server's own word on what the stream holds.

The oracle is a second slot, made together with ours and never read by the receiver:
`pg_logical_slot_peek_binary_changes` shows what pgoutput writes for it. Descriptions of relations and
types are left out of the comparison: they come once a session, and the sessions differ.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.position import Position
from headrace.core.records import to_record
from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes
from headrace.ingest.supervisor import Feed, Receiver
from headrace.sources.postgres.position import Lsn, PostgresTimeline
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import identify
from headrace.sources.postgres.upstream import PostgresUpstream
from headrace.spool.reader import SpoolReader
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for

SLOT, ORACLE, PUBLICATION = "ours", "oracle", "pub"
UPSTREAM = PostgresUpstream(SLOT, PUBLICATION)
Transaction = tuple[int, list[bytes]]  # commit LSN, messages


@dataclass
class Stage:
    """A database with a publication and two slots, and a receiver of it."""

    database: Database
    feed: Feed
    frontier: Position  # where the stream begins
    receiver: Receiver = field(init=False)

    def __post_init__(self) -> None:
        self.receiver = Receiver(self.feed)

    @property
    def address(self) -> PostgresAddress:
        return PostgresAddress(self.feed.address.text)

    @property
    def reader(self) -> SpoolReader:
        return SpoolReader(self.feed.folder)

    def vary(self, **changes: Any) -> None:
        """Use another feed from the next start on; `slot` and `publication` stand in what is upstream."""
        upstream = dict(self.feed.upstream)
        upstream |= {name: changes.pop(name) for name in ("slot", "publication") if name in changes}
        self.feed = replace(self.feed, upstream=upstream, **changes)
        self.receiver = Receiver(self.feed)

    def start(self, frontier: Position | None = None) -> None:
        self.receiver.start(frontier or self.frontier)
        wait_for(lambda: self.receiver.poll().streaming, "the receiver streams")

    def refusal(self, frontier: Position | None = None) -> HeadraceError:
        """Start; the error with which the receiver ends."""
        self.receiver.start(frontier or self.frontier)
        return self.error()

    def error(self, deadline: float = 60) -> HeadraceError:
        """The error with which the running receiver ends."""
        caught: list[HeadraceError] = []

        def ended() -> bool:
            try:
                self.receiver.poll()
            except HeadraceError as error:
                caught.append(error)
            return bool(caught)

        wait_for(ended, "the receiver ends with an error", deadline=deadline)
        return caught[0]

    def catch_up(self, deadline: float = 60) -> None:
        """Wait until everything that is committed now is in the spool."""
        target = PostgresTimeline().position(
            Lsn.parse(self.database.execute("SELECT pg_current_wal_flush_lsn()::text")[0][0])
        )
        self.database.execute("INSERT INTO nudge DEFAULT VALUES")
        reader = self.reader

        def there() -> bool:
            self.receiver.poll()
            return (reader.frontier() or 0) >= target.time

        wait_for(there, "the spool catches up", deadline=deadline)

    def spooled(self) -> list[Transaction]:
        """Read the transactions in the spool."""
        reader = self.reader
        found = []
        after = 0
        while len(records := reader.transactions(after, limit=1000)):
            found += [(int(r["time"]), messages_of(reader, r)) for r in records]
            after = int(records["stop"][-1])
        return found

    def expected(self) -> list[Transaction]:
        """Ask the server which transactions there are."""
        rows = self.database.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL, "
            "'proto_version', '1', 'publication_names', %s)",
            [ORACLE, PUBLICATION],
        )
        found: list[Transaction] = []
        for (data,) in rows:
            message = bytes(data)
            if message[:1] == b"B":
                found.append((int.from_bytes(message[1:9], "big"), []))
            if message[:1] not in (b"R", b"Y", b"A"):
                found[-1][1].append(message)
        return found

    def slot(self) -> tuple[Position, int | None]:
        """The confirmed position of our slot, and who reads it."""
        ((confirmed, pid),) = self.database.execute(
            "SELECT confirmed_flush_lsn::text, active_pid FROM pg_replication_slots WHERE slot_name = %s",
            [SLOT],
        )
        return PostgresTimeline().position(Lsn.parse(confirmed)), pid


def messages_of(reader: SpoolReader, record: np.void) -> list[bytes]:
    """The plugin's messages of one transaction, without descriptions and keepalives."""
    data = reader.read(int(record["start"]), int(record["stop"]))
    messages = plugin_messages(data)
    assert (messages[0][:1], messages[-1][:1]) == (b"B", b"C")
    assert sum(message[:1] in (b"I", b"U", b"D", b"T") for message in messages) == record["changes"]
    return messages


def plugin_messages(data: Bytes) -> list[bytes]:
    """The plugin's messages in a buffer of frames, without descriptions and keepalives."""
    found = pgoutput.scan(data)
    return [
        data[start:stop].tobytes()
        for kind, start, stop in zip(found.kind.tolist(), found.start, found.stop, strict=True)
        if kind not in b"RYAk"
    ]


@contextmanager
def stage(database: Database, folder: Path, **feed: Any) -> Iterator[Stage]:
    """Tables `t`, `u` (published), `other`, `nudge` (not), and a receiver that is stopped at the end."""
    database.execute("CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    database.execute("CREATE TABLE u (id bigint PRIMARY KEY, v text)")
    database.execute("CREATE TABLE other (id bigint)")
    database.execute("CREATE TABLE nudge (id bigint)")
    database.execute("ALTER TABLE t REPLICA IDENTITY FULL")
    database.execute(f"CREATE PUBLICATION {PUBLICATION} FOR TABLE t, u")
    ((begin,),) = database.execute(
        f"SELECT lsn::text FROM pg_create_logical_replication_slot('{SLOT}', 'pgoutput')"
    )
    database.execute(f"SELECT pg_create_logical_replication_slot('{ORACLE}', 'pgoutput')")
    database.execute("GRANT SELECT ON t, u TO app")
    address = PostgresAddress.parse(feed.pop("url", None) or database.url(user="app"))
    with connect(PostgresAddress.parse(database.url(user="app")), role="test") as connection:
        identity = identify(connection)
    made = Stage(
        database,
        Feed("postgres", address, to_record(identity), to_record(UPSTREAM), folder / "spool", **feed),
        PostgresTimeline().position(Lsn.parse(begin)),
    )
    try:
        yield made
    finally:
        made.receiver.kill()
