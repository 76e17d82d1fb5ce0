"""Cases of changes to rows: tables with rows that are copied, then changes that are streamed.

All cases run in one database that one mirror follows (`test_rows`). A shape's rows travel twice: some by the
copy, others of the same kind by the stream. Then all are changed, and at last all are deleted.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from headrace_testing.conformance.place import Place, execute, session
from headrace_testing.oracle.contract import Dialect, Rejected, Session
from headrace_testing.postmaster import wait_for
from headrace_testing.workload import Transfers, running

BY_COPY, BY_STREAM = range(1, 21), range(101, 121)
LONG = "".join(f"{i * 7919 % 9973:04}" for i in range(2500))  # hardly compresses: it lies apart from its row
WIDE = 60


@dataclass(frozen=True, slots=True)
class Case:
    """Tables that a mirror follows: `make` fills them for the copy, `change` and `end` stream changes."""

    name: str
    tables: tuple[str, ...]
    make: Callable[[Session], None]
    change: Callable[[Place], None]
    end: Callable[[Place], None] = lambda _: None


@dataclass(frozen=True, slots=True)
class Shape:
    """A table with rows. In its SQL, `{...}` stands for a type of the server, or for its quotation mark."""

    table: str
    columns: str
    row: Callable[[int], tuple[Any, ...]]
    changes: tuple[str, ...]
    copied: range = BY_COPY
    whole_rows: bool = False
    apart: str = ""

    def make(self, writer: Session) -> None:
        dialect, table = writer.dialect, writer.dialect.quoted(self.table)
        writer.execute(f"CREATE TABLE {table} ({self.columns.format_map(_words(dialect))})")
        if self.whole_rows and dialect.whole_rows:
            writer.execute(dialect.whole_rows.format(t=table))
        if self.apart and dialect.out_of_line:
            writer.execute(dialect.out_of_line.format(t=table, c=self.apart))
        self._insert(writer, self.copied)

    def change(self, place: Place) -> None:
        with session(place) as writer:
            self._insert(writer, BY_STREAM)
            writer.commit()
            words = {**_words(writer.dialect), "t": writer.dialect.quoted(self.table)}
            for statement in self.changes:
                writer.execute(statement.format_map(words))
            writer.commit()

    def end(self, place: Place) -> None:
        with session(place) as writer:
            writer.execute(f"DELETE FROM {writer.dialect.quoted(self.table)}")
            writer.commit()

    def _insert(self, writer: Session, numbers: range) -> None:
        places = ", ".join(["%s"] * len(self.row(0)))
        insert = f"INSERT INTO {writer.dialect.quoted(self.table)} VALUES ({places})"
        writer.execute_many(insert, [self.row(number) for number in numbers])

    @property
    def case(self) -> Case:
        return Case(f"shape_{self.table.split()[0].lower()}", (self.table,), self.make, self.change, self.end)


def _words(dialect: Dialect) -> Mapping[str, str]:
    return {**dialect.types, "q": dialect.quote}


def _values(i: int) -> tuple[Any, ...]:
    """A row of every common type. Every fifth row has only its key, the others have extreme values."""
    if i % 5 == 0:
        return (i, *[None] * 8)
    day = datetime.date(1 + i * 16, 1 + i % 12, 1 + i % 28)
    at = datetime.datetime(1970 + i % 60, 1 + i % 12, 28, 23, 59, 59, 999_000 + i)
    number = Decimal(f"{'-' if i % 2 else ''}{i * 10**7}.0{i % 10}")
    return (
        i,
        i % 2 == 0,
        (-1) ** i * (2**63 - i),
        number,
        i / 7,
        day,
        at,
        bytes([0, i, 255]),
        f"ä\n\\{i}\t'\"",
    )


SHAPES = (
    Shape(
        "plain",
        "id int PRIMARY KEY, n int, s {text}",
        lambda i: (i, i, f"row {i}"),
        (
            "UPDATE {t} SET n = n + 1 WHERE id > 5",
            "UPDATE {t} SET s = NULL WHERE id = 7",
            "DELETE FROM {t} WHERE id < 4",
            "INSERT INTO {t} VALUES (2, 0, 'again')",
            "UPDATE {t} SET id = id + 1000 WHERE id BETWEEN 10 AND 15",
            "DELETE FROM {t} WHERE id = 1011",
            "INSERT INTO {t} VALUES (1011, 0, 'again')",
        ),
    ),
    Shape(
        "only_a_key",
        "id int PRIMARY KEY",
        lambda i: (i,),
        ("UPDATE {t} SET id = id + 5000 WHERE id > 10", "DELETE FROM {t} WHERE id = 5"),
    ),
    Shape(
        "turned_key",
        "a int NOT NULL, b {key_text} NOT NULL, c date NOT NULL, n int, PRIMARY KEY (b, c, a)",
        lambda i: (i, f"b{i % 3}", datetime.date(2026, 1, 1 + i % 28), 0),
        (
            "UPDATE {t} SET n = a",
            "UPDATE {t} SET b = 'other' WHERE a > 110",
            "DELETE FROM {t} WHERE b = 'b1'",
        ),
    ),
    Shape(
        "key_of_text",
        "k {key_text} PRIMARY KEY, n int",
        lambda i: (f"Ä {i}", i),
        ("UPDATE {t} SET n = 0 WHERE n > 110", "DELETE FROM {t} WHERE k = 'Ä 3'"),
    ),
    Shape(
        "no_key",
        "a int, b {text}",
        lambda i: (i % 4 or None, "twin" if i % 2 else None),
        (
            "UPDATE {t} SET b = 'changed' WHERE a = 1",
            "DELETE FROM {t} WHERE a IS NULL",
            "INSERT INTO {t} VALUES (3, 'twin'), (3, 'twin')",
        ),
        whole_rows=True,
    ),
    Shape(
        "whole_rows",
        "id int PRIMARY KEY, n int, big {text}",
        lambda i: (i, i, LONG),
        ("UPDATE {t} SET n = 0 WHERE id < 9", "UPDATE {t} SET id = 900 WHERE id = 9"),
        whole_rows=True,
        apart="big",
    ),
    Shape(
        "long_values",
        "id int PRIMARY KEY, n int, big {text}",
        lambda i: (i, i, f"{i}{LONG}"),
        (
            "UPDATE {t} SET n = 0 WHERE id < 9",
            "UPDATE {t} SET id = 900 WHERE id = 9",
            "UPDATE {t} SET n = 1 WHERE id = 900",
            "UPDATE {t} SET big = 'short' WHERE id = 110",
        ),
        apart="big",
    ),
    Shape("empty", "id int PRIMARY KEY, n int", lambda i: (i, i), (), copied=range(0)),
    Shape(
        "wide",
        "id int PRIMARY KEY, " + ", ".join(f"c{i} int" for i in range(WIDE)),
        lambda i: (i, *(None if (i + column) % 7 == 0 else column for column in range(WIDE))),
        ("UPDATE {t} SET c7 = id, c50 = NULL WHERE id > 10",),
    ),
    Shape(
        "of_each_type",
        "id int PRIMARY KEY, yes {bool}, n bigint, d {decimal}, f {double}, day date, at {moment},"
        " raw {bytes}, s {text}",
        _values,
        ("UPDATE {t} SET s = '', n = NULL, yes = NULL WHERE id > 10", "DELETE FROM {t} WHERE id = 6"),
    ),
    Shape(
        "Odd Name's",
        "{q}Id{q} int PRIMARY KEY, {q}sel ect{q} int, {q}ünï{q} {text}",
        lambda i: (i, i, f"row {i}"),
        ("UPDATE {t} SET {q}sel ect{q} = 0 WHERE {q}Id{q} > 10", "DELETE FROM {t} WHERE {q}Id{q} = 6"),
    ),
)


def _numbered(*tables: str) -> Callable[[Session], None]:
    """Make tables of a key and a text, with nine rows each."""

    def make(writer: Session) -> None:
        for table in tables:
            writer.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, s {writer.dialect.types['text']})")
            writer.execute_many(f"INSERT INTO {table} VALUES (%s, %s)", [(i, "copied") for i in range(1, 10)])

    return make


def _in_one_transaction(place: Place) -> None:
    """Change two tables in one transaction, and one row several times: the last change counts."""
    execute(
        place,
        "INSERT INTO one VALUES (10, 'x')",
        "INSERT INTO other VALUES (10, 'x')",
        "UPDATE one SET s = 'y' WHERE id = 10",
        "DELETE FROM other WHERE id = 10",
        "INSERT INTO other VALUES (10, 'z')",
        "INSERT INTO one VALUES (11, 'passing')",
        "DELETE FROM one WHERE id = 11",
    )


def _roll_back(place: Place) -> None:
    """Roll back a transaction, a part of another, and a statement that the server refuses."""
    with session(place) as writer:
        writer.execute("UPDATE undone SET s = 'never'")
        writer.rollback()
        writer.execute("INSERT INTO undone VALUES (10, 'stays')")
        writer.execute("SAVEPOINT a")
        writer.execute("DELETE FROM undone WHERE id < 5")
        writer.execute("ROLLBACK TO SAVEPOINT a")
        try:
            writer.execute("INSERT INTO undone VALUES (10, 'taken')")
        except Rejected:
            writer.execute("ROLLBACK TO SAVEPOINT a")
        writer.execute("INSERT INTO undone VALUES (11, 'stays')")
        writer.commit()


def _commit_late(place: Place) -> None:
    """Commit the transaction last that began first: the order of commits counts."""
    with session(place) as early, session(place) as quick:
        early.execute("INSERT INTO late_commit VALUES (10, 'early')")
        for number in range(20, 24):
            quick.execute(f"INSERT INTO late_commit VALUES ({number}, 'quick')")
            quick.commit()
        quick.execute("UPDATE late_commit SET s = 'quick' WHERE id = 1")
        quick.commit()
        early.execute("UPDATE late_commit SET s = 'early' WHERE id = 1")
        early.commit()


def _change_keys(place: Place) -> None:
    """Swap and chain keys; one row leaves its key, and another row takes it."""
    moves = ((1, 100), (2, 1), (100, 2), (3, 40), (4, 3), (40, 5000), (5, 4))
    execute(place, *(f"UPDATE moved SET id = {new}, s = 'was {old}' WHERE id = {old}" for old, new in moves))
    execute(place, "DELETE FROM moved WHERE id = 6", "UPDATE moved SET id = 6 WHERE id = 7")


def _truncate(place: Place) -> None:
    """Truncate tables; rows that were inserted later stay."""
    execute(place, "INSERT INTO emptied VALUES (10, 'goes')")
    execute(place, "TRUNCATE TABLE emptied")
    execute(place, "INSERT INTO emptied VALUES (1, 'after'), (11, 'after')")
    execute(place, "TRUNCATE TABLE emptied_twice")
    execute(place, "INSERT INTO emptied_twice VALUES (1, 'between')")
    execute(place, "TRUNCATE TABLE emptied_twice")


def _transfer(place: Place) -> None:
    """Let two writers work, whose transactions are right only as a whole (`validators.whole`)."""
    with running(Transfers(), place.owner_url, seed=1, writers=2, times=12, prepare=False) as work:
        wait_for(lambda: work.finished, "the transfers")


CASES = (
    *(shape.case for shape in SHAPES),
    Case("transactions", ("one", "other"), _numbered("one", "other"), _in_one_transaction),
    Case("transfers", Transfers().names, Transfers().prepare, _transfer),
    Case("rollbacks", ("undone",), _numbered("undone"), _roll_back),
    Case("late_commits", ("late_commit",), _numbered("late_commit"), _commit_late),
    Case("key_changes", ("moved",), _numbered("moved"), _change_keys),
    Case("truncate", ("emptied", "emptied_twice"), _numbered("emptied", "emptied_twice"), _truncate),
)
