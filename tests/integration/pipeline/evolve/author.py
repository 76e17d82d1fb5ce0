"""An author of DDL and rows: seeded statements over a table, each of which its server accepts.

Names come from a few only, so that a column soon gets the name of one that went, of another that was
renamed, or its own again. `script` has its statements, to be read if a seed fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

import psycopg

NAMES = ("a", "b", "c", "d", "e", "f")
TYPES = {"integer": "int", "text": "text", "character varying": "varchar(40)", "numeric": "numeric(10, 2)"}
CONSTANTS = {"int": "7", "text": "'some'", "varchar(40)": "'short'", "numeric(10, 2)": "1.50"}


@dataclass
class Author:
    """Writes to one table over one connection, whose transactions are the author's own."""

    connection: psycopg.Connection
    table: str
    seed: int
    script: list[str] = field(default_factory=list)
    after: Callable[[], None] | None = None  # each statement

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} {self.table}")
        self._run(f"CREATE TABLE {self.table} (id serial PRIMARY KEY, a int, b text, c varchar(40))")
        if self.random.random() < 0.4:
            self._run(f"ALTER TABLE {self.table} REPLICA IDENTITY FULL")
        for _ in range(6):
            self.rows()

    def step(self) -> None:
        """Some statements: each by itself, in a transaction, or in one that is taken back."""
        kind = self.random.choice(["plain", "plain", "whole", "whole", "back", "savepoint"])
        if kind != "plain":
            self._run("BEGIN")
        for _ in range(self.random.randint(1, 5)):
            self.random.choice([self.rows, self.rows, self.columns])()
        if kind == "savepoint":
            self._run("SAVEPOINT here")
            self.columns()
            self.rows()
            self._run("ROLLBACK TO here")
            self.rows()
        if kind != "plain":
            self._run("ROLLBACK" if kind == "back" else "COMMIT")

    def rows(self) -> None:
        """Change some rows, whatever the columns are by now."""
        known = self._columns()
        some = {name: self._value(of) for name, of in known.items() if self.random.random() < 0.7}
        where = f"WHERE id % 5 = {self.random.randint(0, 4)}"
        match self.random.choice(["insert", "insert", "update", "update", "delete", "key"]):
            case "insert" if some:
                self._run(f"INSERT INTO {self.table} ({', '.join(some)}) VALUES ({', '.join(some.values())})")
            case "update" if some:
                given = ", ".join(f"{name} = {value}" for name, value in some.items())
                self._run(f"UPDATE {self.table} SET {given} {where}")
            case "delete":
                self._run(f"DELETE FROM {self.table} {where} AND id % 2 = 0")
            case "key":
                self._run(f"UPDATE {self.table} SET id = nextval('{self.table}_id_seq') {where}")
            case _:
                self._run(f"INSERT INTO {self.table} DEFAULT VALUES")

    def columns(self) -> None:
        """Alter the columns."""
        known = self._columns()
        free = [name for name in NAMES if name not in known]
        acts = [self._add] * 3 if free else []
        acts += [self._drop, self._rename if free else self._swap, self._swap, self._retype] if known else []
        self.random.choice(acts)(known, free)

    def _add(self, known: dict[str, str], free: list[str]) -> None:
        of = self.random.choice(list(CONSTANTS))
        default = self.random.choice(
            ["", "", f" DEFAULT {CONSTANTS[of]}", f" NOT NULL DEFAULT {CONSTANTS[of]}"]
        )
        if of == "text" and self.random.random() < 0.2:
            default = " DEFAULT md5(random()::text)"
        self._run(f"ALTER TABLE {self.table} ADD COLUMN {self.random.choice(free)} {of}{default}")

    def _drop(self, known: dict[str, str], free: list[str]) -> None:
        self._run(f"ALTER TABLE {self.table} DROP COLUMN {self.random.choice(list(known))}")

    def _rename(self, known: dict[str, str], free: list[str]) -> None:
        old, new = self.random.choice(list(known)), self.random.choice(free)
        self._run(f"ALTER TABLE {self.table} RENAME COLUMN {old} TO {new}")

    def _swap(self, known: dict[str, str], free: list[str]) -> None:
        one, other = self.random.choice(list(known)), self.random.choice(list(known))
        # Of one type they look alike at every mark: nobody who judges sees that they are others.
        if known[one] != known[other]:
            for old, new in ((one, "between"), (other, one), ("between", other)):
                self._run(f"ALTER TABLE {self.table} RENAME COLUMN {old} TO {new}")

    def _retype(self, known: dict[str, str], free: list[str]) -> None:
        name = self.random.choice(list(known))
        wider = {"integer": "bigint", "character varying": "text", "numeric": "numeric(14, 2)"}
        if known[name] in wider:
            self._run(f"ALTER TABLE {self.table} ALTER COLUMN {name} TYPE {wider[known[name]]}")

    def names(self) -> list[str]:
        """The columns by now, in their order."""
        return ["id", *self._columns()]

    def _columns(self) -> dict[str, str]:
        """The columns by now, but for the key, with their types."""
        found = self.connection.execute(
            "SELECT column_name, data_type FROM information_schema.columns"
            " WHERE table_name = %s AND column_name <> 'id' ORDER BY ordinal_position",
            [self.table],
        )
        return dict(found.fetchall())

    def _value(self, of: str) -> str:
        number = self.random.randint(0, 99)
        if of in ("integer", "bigint", "numeric"):
            return self.random.choice([str(number), f"-{number}"])
        if of == "text" and self.random.random() < 0.2:
            return f"repeat(md5('{number}'), 400)"  # out of line
        return self.random.choice([f"'{number}'", "''", f"'text {number}'"])

    def _run(self, statement: str) -> None:
        self.script.append(statement)
        self.connection.execute(statement.encode())
        if self.after is not None:
            self.after()
