"""Two looks and the statements in between: what is explained, and what is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.conversion import Take, Value
from headrace.core.names import TableName
from headrace.sources.mysql.catalog.table_def import ColumnRow, TableLook
from headrace.sources.mysql.ddl.evidence import ExplainedChanges, explain
from headrace.sources.mysql.ddl.steps import (
    FIRST,
    Add,
    AlterStatement,
    ColumnDeclaration,
    Default,
    DropColumn,
    Recode,
    Rename,
    Retype,
    Step,
)

NULL, SEVEN = Value.of(pa.scalar(None, pa.int32())), Value.of(pa.scalar(7, pa.int32()))


def look(*columns: str, key: str = "id", counting: str = "", charset: str = "utf8mb4") -> TableLook:
    """A table of `name type` columns; a type in capitals cannot be NULL, `=` stands before an expression."""
    rows = []
    for number, column in enumerate(columns, 1):
        name, _, of = column.partition(" ")
        plain, _, expression = (of or "int").partition(" = ")
        base = plain.partition("(")[0].lower()
        own = "utf8mb4" if base in ("varchar", "text") else None
        kind = "v" if expression else ""
        nullable = plain[0].islower() and name != key
        rows.append(
            ColumnRow(
                *(name, number, plain.lower(), base, own, own, nullable, kind, expression, False),
                *(None, None, None, None),
            )
        )
    keys = ((key,),) if key else ()
    table = TableName("shop", "t")
    return TableLook(
        table, "BASE TABLE", "InnoDB", tuple(rows), keys, bool(key), (), counting, charset=charset
    )


def declaration(step: Step, now: TableLook) -> Step:
    """The step; where it says no type of its column, that which the look of now has of its name."""
    if not isinstance(step, Add | Retype) or step.declaration.type:
        return step
    name = step.name if isinstance(step, Add) else step.new
    row = next((row for row in now.columns if row.name == name), None)
    said = (
        ColumnDeclaration("int")
        if row is None
        else ColumnDeclaration(row.column_type, not_null=not row.nullable)
    )
    return replace(step, declaration=said)


def found(
    last: TableLook, now: TableLook, *statements: Sequence[Step], key: str = "id", strict: bool = True
) -> ExplainedChanges | None:
    told = [
        (10 * n, AlterStatement(tuple(declaration(step, now) for step in steps), strict))
        for n, steps in enumerate(statements, 1)
    ]
    return explain(last, now, (key,) if key else (), told)


BEFORE = look("id", "a", "b")


@pytest.mark.parametrize(
    ("now", "steps", "parts"),
    [
        (look("id", "a", "b", "n"), [Add("n")], [Take(0), Take(1), Take(2), NULL]),
        (look("n", "id", "a", "b"), [Add("n", "7", after=FIRST)], [SEVEN, Take(0), Take(1), Take(2)]),
        (look("id", "n", "a", "b"), [Add("n", after="ID")], [Take(0), NULL, Take(1), Take(2)]),
        (look("id", "b"), [DropColumn("a")], [Take(0), Take(2)]),
        (look("id", "b", "a"), [Rename("a", "b"), Rename("b", "a")], [Take(0), Take(1), Take(2)]),
        (look("id", "b", "a"), [DropColumn("a"), Add("a")], [Take(0), Take(2), NULL]),
        (look("id", "b", "a"), [Retype("a", "a", after="b")], [Take(0), Take(2), Take(1)]),
        (look("id", "c bigint", "b"), [Retype("a", "c")], [Take(0), Take(1), Take(2)]),
        (
            look("id", "a", "b"),
            [DropColumn("x", lenient=True), Add("b", "5", lenient=True)],
            [*map(Take, range(3))],
        ),
    ],
)
def test_a_statement_says_out_of_what_each_column_comes(
    now: TableLook, steps: Sequence[Step], parts: Sequence[object]
) -> None:
    told = found(BEFORE, now, steps)
    assert told is not None
    assert list(told.parts) == list(parts)


def test_each_version_between_statements_is_known() -> None:
    now = look("id", "c bigint", "n")
    told = found(
        BEFORE,
        now,
        [Add("n")],
        [DropColumn("b"), Add("x")],
        [Rename("a", "c"), DropColumn("x")],
        [Retype("c", "c")],
    )
    assert told is not None
    names = [version.conversion.names for version in told.versions]
    assert names == [("id", "a", "b"), ("id", "a", "b", "n"), ("id", "a", "n", "x"), ("id", "c", "n")]
    assert [version.conversion.until for version in told.versions] == [10, 20, 30, 40]
    assert [version.conversion.parts[1] for version in told.versions] == [Take(1)] * 4
    assert [version.conversion.parts[2] for version in told.versions] == [NULL, Take(3), Take(2), Take(2)]
    types = [[row and row.column_type for row in version.columns] for version in told.versions]
    assert types[2] == ["int", "int", "int", None]
    assert types[3] == ["int", "int", "int"]


@pytest.mark.parametrize(
    ("now", "statements"),
    [
        (look("id", "a", "b", "n"), []),
        (look("id", "a", "b", "n"), [[Add("m")]]),
        (look("id", "a", "b", "n"), [[Add("n", after=FIRST)]]),
        (look("id", "a", "b", "n"), [[Add("n")], [Add("n")]]),
        (look("id", "a", "b bigint", "n"), [[Add("n")]]),
        (look("id", "a", "b smallint"), [[Retype("b", "b")]]),
        (look("id", "a", "b"), [[Retype("b", "b")], [Retype("b", "b")]]),
        (look("id", "a", "b bigint"), [[Retype("b", "b")], [Recode()]]),
        (look("id", "a", "b"), [[Retype("b", "b", counts=True)]]),
        (look("id", "a", "b", "n DATE"), [[Add("n")]]),
        (look("id", "a", "b", "n"), [[Add("n", "8"), Retype("n", "n")]]),
        (look("id", "a", "b", "n"), [[Add("n", "8")], [Retype("n", "n")]]),
        (look("id", "a", "b", "n int = a"), [[Add("n")]]),
        (look("id", "a", "b bigint", "v int = a"), [[Retype("b", "b")]]),
        (look("id", "b"), [[DropColumn("a"), DropColumn("A")]]),
        (look("id", "é", "b"), [[Rename("a", "É")]]),
        (look("id", "a", "b", key="a"), [[Add("n")], [DropColumn("n")]]),
    ],
)
def test_what_the_statements_do_not_explain_is_not_proven(
    now: TableLook, statements: Sequence[Sequence[Step]]
) -> None:
    assert found(BEFORE, now, *statements) is None


def test_of_a_table_with_a_stored_column_nothing_is_proven() -> None:
    last, now = (look("id", *between, "v int = id") for between in ([], ["n"]))
    assert found(last, now, [Add("n", after="id")]) is not None
    last, now = (
        replace(each, columns=(*each.columns[:-1], replace(each.columns[-1], generation="s")))
        for each in (last, now)
    )
    assert found(last, now, [Add("n", after="id")]) is None


def test_a_column_that_another_is_computed_from_is_not_defined_anew() -> None:
    last, now = (look("id", f"b {of}", "n", "v int = b") for of in ("int", "bigint"))
    assert found(last, last, [Rename("n", "n")]) is not None
    assert found(last, now, [Retype("b", "b")]) is None


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        ("int(11)", "int"),
        ("tinyint(1)", "tinyint"),
        ("bigint(20) unsigned zerofill", "bigint unsigned"),
        ("year(4)", "year"),
        ("decimal(9,2) unsigned zerofill", "decimal(9,2) unsigned"),
        ("geometrycollection", "geomcollection"),
    ],
)
def test_a_type_is_what_was_said_whatever_more_the_catalog_prints(shown: str, said: str) -> None:
    last = look("id", f"a {shown}")
    assert found(last, last, [Retype("a", "a", declaration=ColumnDeclaration(said))]) is not None
    assert found(last, last, [Retype("a", "a", declaration=ColumnDeclaration(shown + " "))]) is None


def test_a_column_of_the_primary_key_is_never_null_whatever_was_said() -> None:
    last, now = look("id", "a"), look("id BIGINT", "a")
    step = Retype("id", "id", declaration=ColumnDeclaration("bigint"))
    assert found(last, now, [step]) is not None
    unique = [replace(each, primary=False) for each in (last, now)]
    assert found(unique[0], unique[1], [step]) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"keys": (), "primary": False},
        {"keys": (("a",),)},
        {"primary": False},
        {"kind": "VIEW"},
        {"engine": "MyISAM"},
        {"cascades": ("f",)},
    ],
)
def test_what_becomes_of_the_table_itself_no_statement_explains(changed: dict[str, Any]) -> None:
    now = look("id", "a", "b", "n")
    assert found(BEFORE, now, [Add("n")]) is not None
    assert found(BEFORE, replace(now, **changed), [Add("n")]) is None


def test_a_column_that_may_not_be_null_any_more_is_the_same_where_the_session_was_strict() -> None:
    now = look("id", "a INT", "b")
    assert found(BEFORE, now, [Retype("a", "a")]) is not None
    assert found(BEFORE, now, [Retype("a", "a")], strict=False) is None


@pytest.mark.parametrize(
    ("now", "step"),
    [
        (look("id", "a", "b"), Retype("b", "b", declaration=ColumnDeclaration("tinyint"))),
        (look("id", "a", "b"), Retype("b", "b", declaration=ColumnDeclaration("int", not_null=True))),
        (look("id", "a", "b INT"), Retype("b", "b", declaration=ColumnDeclaration("int"))),
        (look("id", "a", "b", "n INT"), Add("n", declaration=ColumnDeclaration("int"))),
        (look("id", "a", "b", "n int"), Add("n", declaration=ColumnDeclaration("int", not_null=True))),
        (look("id", "a", "b", "n bigint"), Add("n", "7", declaration=ColumnDeclaration("int"))),
        (
            look("id", "a", "b", "n text"),
            Add("n", "x", is_text=True, declaration=ColumnDeclaration("text", charset="latin1")),
        ),
    ],
)
def test_a_look_that_shows_another_definition_is_of_a_later_statement(now: TableLook, step: Step) -> None:
    assert found(BEFORE, now, [step]) is None


def test_a_text_that_was_given_another_charset_and_back_is_not_proven() -> None:
    texts = look("id", "a text")
    assert found(texts, texts, [Recode("utf8mb4")]) is not None
    assert found(texts, texts, [Recode("latin1")]) is None


TEXT, NARROW = Retype("a", "a"), Retype("a", "a", declaration=ColumnDeclaration("text", charset="utf8mb4"))


@pytest.mark.parametrize(
    ("last", "now", "statements", "proven"),
    [
        ("utf8mb4", "utf8mb4", [[TEXT]], True),
        ("latin1", "latin1", [[TEXT]], False),
        ("latin1", "latin1", [[NARROW]], True),
        ("", "utf8mb4", [[TEXT]], False),
        ("", "utf8mb4", [[NARROW]], True),
        ("", "utf8mb4", [[Default("utf8mb4")], [TEXT]], True),
        ("utf8mb4", "latin1", [[Default("latin1")], [TEXT]], False),
        ("latin1", "utf8mb4", [[TEXT], [Default("utf8mb4")]], False),
        ("latin1", "utf8mb4", [[Default("utf8mb4")], [TEXT]], True),
        ("utf8mb4", "latin1", [[TEXT], [Default("latin1")]], True),
        ("latin1", "utf8mb4", [[Default("utf8mb4"), TEXT]], False),
        ("utf8mb4", "utf8mb4", [[Default("utf8mb4"), TEXT]], True),
        ("utf8mb4", "latin1", [[TEXT]], False),
        ("utf8mb4", "utf8mb4", [[Default("latin1")]], False),
        ("latin1", "utf8mb4", [[Recode("utf8mb4")]], True),
        ("latin1", "latin1", [[Recode("utf8mb4")]], False),
    ],
)
def test_a_text_without_a_charset_has_the_default_of_its_moment(
    last: str, now: str, statements: Sequence[Sequence[Step]], proven: bool
) -> None:
    before, after = look("id", "a text", charset=last), look("id", "a text", charset=now)
    assert (found(before, after, *statements) is not None) is proven


def test_a_timestamp_that_may_not_be_null_any_more_may_hold_the_time_of_the_statement() -> None:
    last, now = look("id", "a timestamp"), look("id", "a TIMESTAMP")
    assert found(last, now, [Retype("a", "a")]) is None
    assert found(now, now, [Retype("a", "a")]) is not None


def test_a_counter_stays_one() -> None:
    last, now = look("id", counting="id"), look("id BIGINT", counting="id")
    assert found(last, now, [Retype("id", "id", counts=True)]) is not None


def test_the_key_is_followed_through_its_names() -> None:
    told = found(BEFORE, look("number", "a", "b", key="number"), [Rename("id", "number")])
    assert told is not None
    assert told.key == ("number",)
    assert found(BEFORE, look("a", "b", key=""), [DropColumn("id")]) is None
    assert found(look("a", "b", key=""), look("b", key=""), [DropColumn("a")], key="") is not None
