"""An author of DDL and rows on MySQL and MariaDB: seeded statements, of which a server may refuse some.

Names come from a few only, so that a column soon gets the name of one that went, of another that was renamed,
or its own again. Clauses are drawn from what is followed and what is not, alone and several to a statement,
under strict modes and others. `script` has the statements, to be read if a seed fails.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pymysql

NAMES = ("a", "b", "c", "d", "g", "H")
TYPES = {
    "tinyint": "1",
    "smallint unsigned": "60000",
    "int": "-7",
    "int unsigned": "4294967295",
    "bigint": "9223372036854775807",
    "bigint unsigned": "18446744073709551615",
    "decimal(8,2)": "-1.50",
    "decimal(12,4)": "1234.5678",
    "double": "0.25",
    "float": "0.1",
    "varchar(20)": "'some text'",
    "varchar(60)": "'some longer text'",
    "char(9)": "'short'",
    "text": "'a text'",
    "mediumtext CHARACTER SET utf8mb3": "'another'",
    "varchar(9) CHARACTER SET latin1": "'latin'",
    "enum('x','y')": "'y'",
    "enum('x','y','z')": "'x'",
    "enum('y','x')": "'y'",
    "set('p','q')": "'p'",
    "datetime": "'2026-05-06 07:08:09'",
    "datetime(3)": "'2026-05-06 07:08:09'",
    "varbinary(20)": "x'00ff'",
}


@dataclass
class Author:
    """Writes to one table over one connection."""

    connection: pymysql.Connection[Any]
    table: str
    seed: int
    key: str = "PRIMARY KEY (id)"
    script: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(f"{self.seed} {self.table}")
        self._run("SET sql_mode = DEFAULT")
        self._run(
            f"CREATE TABLE {self.table} (id int NOT NULL, a int, b varchar(20), c enum('x','y'),"
            f" d decimal(8,2), at datetime, {self.key})"
        )
        for _ in range(6):
            self.rows()

    def step(self) -> None:
        """Some statements: rows, DDL, or a transaction of rows."""
        for _ in range(self.random.randint(1, 4)):
            kind = self.random.choice(["rows", "rows", "columns", "columns", "whole", "mode"])
            if kind == "mode":
                mode = self.random.choice(["''", "DEFAULT", "DEFAULT", "'STRICT_ALL_TABLES,ANSI_QUOTES'"])
                self._run(f"SET sql_mode = {mode}")
            elif kind == "whole":
                self._run("BEGIN")
                for _ in range(self.random.randint(1, 4)):
                    self.rows()
                self._run(self.random.choice(["COMMIT", "COMMIT", "ROLLBACK"]))
            else:
                getattr(self, kind)()

    def rows(self) -> None:
        """Change some rows, whatever the columns are by now."""
        known = self._columns()
        first, *others = known
        some = {name: self._value(known[name]) for name in others if self.random.random() < 0.7}
        where = f"WHERE `{first}` % 5 = {self.random.randint(0, 4)}"
        given = ", ".join(f"`{name}` = {value}" for name, value in some.items())
        match self.random.choice(["insert", "insert", "insert", "update", "update", "delete", "key"]):
            case "update" if some:
                self._run(f"UPDATE {self.table} SET {given} {where}")
            case "delete":
                self._run(f"DELETE FROM {self.table} {where} AND `{first}` % 2 = 0")
            case "key":
                self._run(f"UPDATE IGNORE {self.table} SET `{first}` = `{first}` + 100 {where}")
            case _:
                number = self.random.randint(0, 5000)
                names = ", ".join(f"`{name}`" for name in [first, *some])
                values = ", ".join([str(number), *some.values()])
                self._run(f"INSERT IGNORE INTO {self.table} ({names}) VALUES ({values})")

    def columns(self) -> None:
        """One ALTER TABLE of a clause or of some, or another statement on the table."""
        if self.random.random() < 0.05:
            self._run(f"TRUNCATE TABLE {self.table}")
            return
        known = list(self._columns())
        count = self.random.choice([1, 1, 1, 2, 3])
        clauses = [
            self.random.choice([self._add, self._add, self._drop, self._rename, self._retype, self._plain])(
                known
            )
            for _ in range(count)
        ]
        verb = self.random.choice(
            ["ALTER TABLE", "ALTER TABLE", "alter /* so; */ table", "ALTER /*!50000 TABLE*/"]
        )
        self._run(f"{verb} {self.table} {', '.join(clauses)}")

    def _add(self, known: list[str]) -> str:
        of = self.random.choice(list(TYPES))
        default = self.random.choice(
            [
                *("", "", " NULL", " DEFAULT NULL", f" DEFAULT {TYPES[of]}"),
                *(f" NOT NULL DEFAULT {TYPES[of]}", " NOT NULL", " NOT NULL"),
                *(" DEFAULT (1 + 1)", " UNIQUE", " COMMENT 'it''s; so'"),
            ]
        )
        lenient = self.random.choice(["", "", "", "COLUMN IF NOT EXISTS "])
        return f"ADD {lenient}{self._name()} {of}{default}{self._where(known)}"

    def _drop(self, known: list[str]) -> str:
        lenient = self.random.choice(["", "COLUMN ", "COLUMN IF EXISTS "])
        return f"DROP {lenient}{self.random.choice(known[1:] or known)}"

    def _rename(self, known: list[str]) -> str:
        if len(known) > 2 and self.random.random() < 0.3:
            one, other = self.random.sample(known[1:], 2)
            return f"RENAME COLUMN {one} TO {other}, RENAME COLUMN {other} TO {one}"
        return f"RENAME COLUMN {self.random.choice(known)} TO {self._name()}"

    def _retype(self, known: list[str]) -> str:
        old = self.random.choice(known)
        of = self.random.choice(["int", "bigint"] if old == known[0] else list(TYPES))
        rest = self.random.choice(["", "", " NULL", " NOT NULL"]) + self._where(known)
        if self.random.random() < 0.3:
            return f"CHANGE {old} {self._name()} {of}{rest}"
        return f"MODIFY {old} {of}{rest}"

    def _plain(self, known: list[str]) -> str:
        name = self.random.choice(known)
        return self.random.choice(
            [
                *(f"ADD KEY ({name})", "COMMENT = 'x'", "FORCE", "ALGORITHM = COPY", "AUTO_INCREMENT = 7"),
                *(f"ALTER COLUMN {name} SET DEFAULT 5", f"ALTER {name} DROP DEFAULT"),
            ]
        )

    def _where(self, known: list[str]) -> str:
        return self.random.choice(["", "", "", " FIRST", f" AFTER {self.random.choice(known)}"])

    def _name(self) -> str:
        return self.random.choice(NAMES)

    def _columns(self) -> dict[str, str]:
        """The columns by now with their types; the one that began as the key comes first, if it is there."""
        with self.connection.cursor() as cursor:
            cursor.execute(
                "SELECT column_name, data_type FROM information_schema.columns"
                " WHERE table_schema = DATABASE() AND table_name = %s"
                " ORDER BY column_key <> 'PRI', column_name <> 'id', ordinal_position",
                [self.table],
            )
            return {str(name): str(of) for name, of in cursor.fetchall()}

    def _value(self, of: str) -> str:
        number = self.random.randint(0, 99)
        if of == "enum":
            return self.random.choice(["'x'", "'y'", "NULL"])
        if of == "set":
            return self.random.choice(["'p'", "'p,q'", "''"])
        if of == "datetime":
            return f"'2026-01-01 00:00:{number % 60:02}.{number:03}'"
        if of in ("varchar", "char", "text", "mediumtext", "varbinary"):
            return self.random.choice([f"'{number}'", "''", f"'text {number}'", "'é'", "NULL"])
        return self.random.choice([str(number), f"{number}.25", "NULL"])

    def _run(self, statement: str) -> None:
        try:
            with self.connection.cursor() as cursor:
                cursor.execute(statement)
            self.script.append(statement)
        except pymysql.err.MySQLError as error:
            self.script.append(f"-- {error.args[0]}: {statement}")
