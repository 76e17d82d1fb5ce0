"""The server is asked whether it leaves rows as they are where one type of a column becomes another.

a pair of types that `catalog.types` calls alike ─► ALTER, plain ─► same file: every value prints as before
                                                └─► ALTER ... USING that makes another value: another file

All pairs of the types that such a rule speaks of are tried, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import permutations

import psycopg
import pytest

from headrace.core.names import TableName
from headrace.sources.postgres.catalog.definitions import read_entries_by_name
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.ddl.alteration import derive, differs
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.types.columns import is_same_form, is_wider
from headrace_testing.postgres import Server

pytestmark = pytest.mark.server

MOMENTS = ("infinity", "-infinity", "4713-01-01 00:00:00 BC", "1969-12-31 23:59:59.999999", "294276-12-31")
CLOCKS = ("00:00:00", "23:59:59.999999", "24:00:00", "12:34:56.5")
SPANS = ("178000000 years", "-178000000 years", "1 mon -1 day 00:00:00.000001", "0", "1.5 s")
NUMBERS = ("0", "-0.01", "7.50", "99999999.99", "-99999999.99", "NaN")
WORDS = ("", " ", "a", "ab   ", "é", "\\N", "ändern")
BITS = ("", "0", "1", "0101", "11111111")

# Spellings of a type, values at its borders, and a USING that makes others of them.
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str]] = {
    "time": (("time(0)", "time(3)", "time(6)", "time"), CLOCKS, "v::time(0)"),
    "timetz": (("timetz(0)", "timetz(3)", "timetz"), ("00:00:00+15:59", "12:34:56.5-08"), "v::timetz(0)"),
    "timestamp": (
        ("timestamp(0)", "timestamp(3)", "timestamp(6)", "timestamp"), MOMENTS, "date_trunc('hour', v)",
    ),
    "timestamptz": (("timestamptz(0)", "timestamptz(6)", "timestamptz"), MOMENTS, "v::timestamptz(0)"),
    "interval": (
        ("interval(0)", "interval(3)", "interval", "interval hour to second", "interval year"),
        SPANS, "v * 2",
    ),
    "numeric": (
        ("numeric(10, 2)", "numeric(12, 2)", "numeric(38, 2)", "numeric(60, 2)", "numeric(12, 3)", "numeric"),
        NUMBERS, "v::numeric(9, 0)",
    ),
    "text": (("varchar(6)", "varchar(9)", "varchar", "text", "char(9)"), WORDS, "v::varchar(1)"),
    "varbit": (("varbit(8)", "varbit(80)", "varbit"), BITS, "v || B'1'"),
}  # fmt: skip
# By no rule: the same bytes and another meaning, or another text.
OTHERS = (("timestamp", "timestamptz"), ("cidr", "inet"), ("int", "oid"), ("text", "bytea"), ("xid", "int"))
KNOWN = {  # of those that must be followed without a rewrite
    ("varchar(6)", "varchar(9)"), ("varchar(9)", "text"), ("text", "varchar"), ("timestamp(3)", "timestamp"),
    ("timestamp", "timestamp(6)"), ("interval(3)", "interval"), ("varbit(8)", "varbit"),
    ("numeric(60, 2)", "numeric"), ("numeric(10, 2)", "numeric(12, 2)"), ("time(0)", "time(6)"),
}  # fmt: skip


C = TableName("public", "c")


@dataclass(frozen=True)
class Column:
    """A column of one type: altered by its owner, looked at and read by a session of ours."""

    owner: psycopg.Connection
    session: Session

    def hold(self, spelled: str, values: Sequence[str]) -> None:
        """Be of this type, with a row for each value that it can hold."""
        self.owner.execute(
            f"DROP TABLE IF EXISTS c; CREATE TABLE c (id int PRIMARY KEY, v {spelled})".encode()
        )
        self.owner.execute(
            f"INSERT INTO c SELECT n, v::{spelled} FROM unnest(%s::text[]) WITH ORDINALITY AS given (v, n)"
            f" WHERE pg_input_is_valid(v, '{spelled}')".encode(),
            [list(values)],
        )

    def see(self) -> TableEntry:
        return read_entries_by_name(self.session, [C], ["p"])[C]

    def printed(self) -> list[tuple[object, ...]]:
        return list(query(self.session, "SELECT id, v::text FROM public.c ORDER BY id"))

    def alter(self, spelled: str, using: str = "") -> bool:
        """Alter its type; False where the server does not."""
        try:
            self.owner.execute(f"ALTER TABLE c ALTER v TYPE {spelled} {using}".encode())
        except (psycopg.errors.DataError, psycopg.errors.CannotCoerce, psycopg.errors.DatatypeMismatch):
            return False
        return True


@pytest.fixture(scope="module")
def column(postgres_server: Server) -> Iterator[Column]:
    with ExitStack() as stack:
        database = stack.enter_context(postgres_server.database())
        owner = stack.enter_context(database.connect(user="app"))
        address = PostgresAddress.parse(database.url(user="app"))
        yield Column(owner, stack.enter_context(closing(connect(address, role="test"))))


def alike(before: TableEntry, after: TableEntry) -> bool:
    """Tell whether the rules of types say that old values print as before."""
    one, other = ((entry.attributes[1].type, entry.attributes[1].typmod) for entry in (before, after))
    return is_same_form(one, other) or is_wider(one, other)


def followed(before: TableEntry, after: TableEntry) -> bool:
    """Tell whether a look proves that the rows of before are the rows of after."""
    return differs(before, after) is None or derive(before, after) == (0, 1)


def test_a_type_that_is_followed_prints_every_value_as_before(column: Column) -> None:
    plain = set()
    for spellings, values, _ in FAMILIES.values():
        for old, new in permutations(spellings, 2):
            column.hold(old, values)
            before, printed = column.see(), column.printed()
            if not column.alter(new):
                continue
            after = column.see()
            if followed(before, after):
                assert before.filenode == after.filenode, (old, new)
                assert column.printed() == printed, (old, new)
                plain.add((old, new))
            else:
                assert not alike(before, after) or before.filenode != after.filenode, (old, new)
    assert plain >= KNOWN


def test_a_using_that_makes_another_value_is_never_followed(column: Column) -> None:
    for spellings, values, using in FAMILIES.values():
        for old, new in permutations(spellings, 2):
            column.hold(old, values)
            before, printed = column.see(), column.printed()
            if not column.alter(new, f"USING {using}") or column.printed() == printed:
                continue
            assert not followed(before, column.see()), (old, new)


def test_types_of_the_same_bytes_are_not_one(column: Column) -> None:
    for old, new in [*OTHERS, *((new, old) for old, new in OTHERS)]:
        column.hold(old, ("10.0.0.0/8", "7", "2026-01-01"))
        before = column.see()
        assert column.alter(new) or column.alter(new, f"USING v::text::{new}"), (old, new)
        assert not followed(before, column.see()), (old, new)
