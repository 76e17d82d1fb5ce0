"""An author who changes a partitioned table at random: its rows, its columns, and the tree that they are in.

Called by the tests of roots. Each step is one transaction, with savepoints, some of them taken back; what the
server refuses is rolled back and forgotten. `script` is what was run, for whoever has to repeat it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg

SLOTS = 12  # places in the tree, ten values of the partition key each

MORE = {"x": "int", "y": "text", "z": "numeric(10, 2)"}  # columns that come and go
CONSTANTS = {"int": "7", "text": "'some'", "numeric(10, 2)": "1.50"}

_LEAVES = b"SELECT relid::text FROM pg_partition_tree(%s::regclass) WHERE isleaf"
_COLUMNS = b"""
    SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_LEAVING = (
    b"SELECT inhrelid::regclass::text, inhdetachpending FROM pg_inherits WHERE inhparent = %s::regclass"
)


def _bound(slot: int) -> str:
    return f"FOR VALUES FROM ({slot * 10}) TO ({slot * 10 + 10})"


class TreeAuthor:
    """The author of one partitioned table."""

    def __init__(
        self, connection: psycopg.Connection, table: str, seed: int, *, rows_only: bool = False
    ) -> None:
        self.connection = connection
        self.table = table
        self.dice = random.Random(seed)
        self.script: list[str] = []
        self.after: Callable[[], None] | None = None  # each statement
        self.rows_only = rows_only
        self.number = 0
        self.full = False
        self._last = table

    def begin(self, *, full: bool) -> None:
        """Make the table, with some partitions and rows."""
        key = "" if full else ", PRIMARY KEY (id, k)"
        self.run(f"CREATE TABLE {self.table} (id int, k int, v text, big text{key}) PARTITION BY RANGE (k)")
        if full:
            self.run(f"ALTER TABLE {self.table} REPLICA IDENTITY FULL")
        for slot in range(SLOTS // 2):
            self.run(self._made(slot))
            if full:
                self.run(f"ALTER TABLE {self._last} REPLICA IDENTITY FULL")
        self.run(
            f"INSERT INTO {self.table} SELECT i, i % {SLOTS * 5}, 'first', repeat(md5(i::text), 80)"
            " FROM generate_series(1, 60) i"
        )
        self.full = full

    def run(self, statement: str) -> None:
        self.script.append(statement)
        self.connection.execute(statement.encode())
        if self.after is not None:
            self.after()

    def step(self) -> None:
        """A transaction of some statements."""
        if self.dice.random() < 0.1 and not self.rows_only:
            with suppress(psycopg.Error):
                self.run(self._apart())
            return
        self.run("BEGIN")
        for _ in range(self.dice.randrange(1, 5)):
            self.run("SAVEPOINT s")
            try:
                for statement in self._statements():
                    self.run(statement)
            except psycopg.Error:
                self.run("ROLLBACK TO s")
            if self.dice.random() < 0.15:
                self.run("ROLLBACK TO s")
            elif self.dice.random() < 0.5:
                self.run("RELEASE s")
        self.run("ROLLBACK" if self.dice.random() < 0.1 else "COMMIT")

    def idle(self) -> None:
        """Leave no transaction open, whatever the last step met."""
        if self.connection.info.transaction_status is not psycopg.pq.TransactionStatus.IDLE:
            self.run("ROLLBACK")

    def mend(self) -> None:
        """Give each partition the identity that its root asks for; end what DETACH CONCURRENTLY began."""
        for name, leaving in self.connection.execute(_LEAVING, [self.table]).fetchall():
            if leaving:
                self.run(f"ALTER TABLE {self.table} DETACH PARTITION {name} FINALIZE")
        leaves = self.connection.execute(_LEAVES, [self.table]).fetchall() if self.full else []
        for (leaf,) in leaves:
            self.run(f"ALTER TABLE {leaf} REPLICA IDENTITY FULL")

    # --- what it may do

    def _statements(self) -> Iterator[str]:
        if self.rows_only or self.dice.random() < 0.7:
            yield self._rows()
            return
        if self.dice.random() < 0.25:
            yield self._altered()
            return
        slot = self.dice.randrange(SLOTS)
        what = self.dice.choice(("make", "attach", "attach", "detach", "drop", "truncate", "back", "deep"))
        if what == "make":
            yield self._made(slot)
            yield from self._identity()
        elif what == "deep":
            yield f"{self._made(slot)} PARTITION BY LIST (k)"
            middle = self._last
            yield f"CREATE TABLE {middle}_rest PARTITION OF {middle} DEFAULT"
            self._last = f"{middle}_rest"
            yield from self._identity()
        elif what == "attach":
            yield from self._attached(slot)
        else:
            yield from self._taken(what, slot)

    def _rows(self) -> str:
        row, k = self.dice.randrange(80), self.dice.randrange(SLOTS * 10)
        return self.dice.choice(
            (
                f"INSERT INTO {self.table} (id, k, v, big)"
                f" VALUES ({row}, {k}, 'new {k}', repeat('n', {k} * 50))",
                self._more(row, k),
                f"UPDATE {self.table} SET v = 'set {k}' WHERE id = {row}",
                f"UPDATE {self.table} SET v = 'many {k}' WHERE id % 7 = {row % 7}",
                f"UPDATE {self.table} SET k = {k} WHERE id = {row}",
                f"DELETE FROM {self.table} WHERE id = {row}",
                f"UPDATE {self.table} SET id = id + 100 WHERE id = {row} AND k < 30",
            )
        )

    def _more(self, row: int, k: int) -> str:
        """A change of a column that comes and goes, if there is one."""
        there = sorted(MORE.keys() & self.names())
        name = self.dice.choice(there) if there else "v"
        return f"UPDATE {self.table} SET {name} = '{k}' WHERE id % 5 = {row % 5}"

    def _altered(self) -> str:
        """Columns of the root, and so of all beneath it."""
        there, free = sorted(MORE.keys() & self.names()), sorted(MORE.keys() - self.names())
        what = self.dice.choice((*["add"] * 3 * bool(free), *["drop", "rename", "wider"] * bool(there)))
        if what == "add":
            of = self.dice.choice(list(CONSTANTS))
            default = self.dice.choice(("", f" DEFAULT {CONSTANTS[of]}"))
            return f"ALTER TABLE {self.table} ADD COLUMN {self.dice.choice(free)} {of}{default}"
        name = self.dice.choice(there)
        if what == "drop":
            return f"ALTER TABLE {self.table} DROP COLUMN {name}"
        if what == "rename" and free:
            return f"ALTER TABLE {self.table} RENAME COLUMN {name} TO {self.dice.choice(free)}"
        return f"ALTER TABLE {self.table} ALTER COLUMN {name} TYPE text"

    def names(self) -> list[str]:
        """The columns of the root by now, in their order."""
        return [name for name, _ in self._columns()]

    def _columns(self) -> list[tuple[str, str]]:
        return self.connection.execute(_COLUMNS, [self.table]).fetchall()

    def _made(self, slot: int) -> str:
        self._last = self._name()
        return f"CREATE TABLE {self._last} PARTITION OF {self.table} {_bound(slot)}"

    def _name(self) -> str:
        self.number += 1
        return f"{self.table}_{self.number}"

    def _identity(self) -> Iterator[str]:
        if self.full and self.dice.random() < 0.9:
            yield f"ALTER TABLE {self._last} REPLICA IDENTITY FULL"

    def _attached(self, slot: int) -> Iterator[str]:
        self._last = self._name()
        key = "" if self.full else ", PRIMARY KEY (id, k)"
        columns = ", ".join(f"{name} {of}" for name, of in reversed(self._columns()))
        yield f"CREATE TABLE {self._last} ({columns}{key})"
        yield from self._identity()
        if self.dice.random() < 0.5:
            row = f"('b', 'brought', {slot * 10 + 3}, {self.dice.randrange(80)})"
            yield f"INSERT INTO {self._last} (big, v, k, id) VALUES {row}"
        yield f"ALTER TABLE {self.table} ATTACH PARTITION {self._last} {_bound(slot)}"

    def _taken(self, what: str, slot: int) -> Iterator[str]:
        found = self._partitions()
        if not found:
            return
        leaf, bound = self.dice.choice(found)
        if what == "truncate":
            yield f"TRUNCATE {self.table if self.dice.random() < 0.2 else leaf}"
            yield f"INSERT INTO {self.table} (id, k, v) VALUES (77, {slot * 10}, 'behind')"
        elif what == "drop":
            yield f"DROP TABLE {leaf}"
        else:
            yield f"ALTER TABLE {self.table} DETACH PARTITION {leaf}"
            if what == "back":
                yield f"DELETE FROM {leaf} WHERE id % 3 = 0"
                yield f"ALTER TABLE {self.table} ATTACH PARTITION {leaf} {bound}"

    def _apart(self) -> str:
        """A statement that no transaction may hold."""
        found = self._partitions()
        leaf = self.dice.choice(found)[0] if found else self.table
        return self.dice.choice(
            (
                f"ALTER TABLE {self.table} DETACH PARTITION {leaf} CONCURRENTLY",
                f"VACUUM FULL {leaf}",
                f"VACUUM {leaf}",
            )
        )

    def _partitions(self) -> list[tuple[str, str]]:
        rows = self.connection.execute(
            b"SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c"
            b" ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass ORDER BY 1",
            [self.table],
        )
        return rows.fetchall()
