"""docs/types.md says of every type what `catalog.types` of its source makes of it; the cases agree."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pyarrow as pa
import pytest

from headrace.sources.mysql.types.columns import column_of as mysql_column
from headrace.sources.postgres.types.columns import TypeEntry, form_of
from tests.cases.types.cases import arrow_type, types
from tests.meta.tracked import ROOT

PAGE = (ROOT / "docs" / "types.md").read_text(encoding="utf-8")
REGISTRY = psycopg.postgres.types
# How the page writes types that stand for many, and one of those.
STAND_FOR = {"numeric(p,s)": "numeric(12,2)", "T[]": "integer[]"}
STAND_FOR_MYSQL = {"decimal(p,s)": "decimal(12,2)"}
LAKE = {"decimal(p,s)": "decimal(12,2)", "array<T>": "array<int>", "array(form of T)": "array(int)"}
# Types of the page that psycopg does not know by name.
TEXT_OIDS = {"macaddr8": 774, "pg_snapshot": 5038, "xid8": 5069, "pg_lsn": 3220, "xml": 142, "jsonpath": 4072}
_MODIFIER = re.compile(r"\((\d+),(\d+)\)")


_POSTGRES, _MYSQL = re.findall(r"(?m)^\|---.*\n((?:\|.*\n)+)", PAGE)


def _rows(body: str = _POSTGRES) -> Iterator[tuple[str, str, str]]:
    """Each type of a table that has a name, with its type in the lake and its form."""
    for row in body.splitlines():
        first, lake, form = (cell.strip() for cell in row.split(" | ")[:3])
        for name in re.findall(r"`([^`]+)`", first):
            yield name, lake.strip("`"), form.strip("`")


def _oid(name: str) -> tuple[int, int]:
    """The oid of a type, and its modifier."""
    modifier = _MODIFIER.search(name)
    bare = _MODIFIER.sub("", name).removesuffix("[]")
    if bare in TEXT_OIDS:
        return TEXT_OIDS[bare], -1
    info = REGISTRY[bare]
    typmod = (int(modifier[1]) << 16 | int(modifier[2])) + 4 if modifier else -1
    return info.array_oid if name.endswith("[]") else info.oid, typmod


def _made(name: str) -> tuple[pa.DataType, str]:
    oid, typmod = _oid(name)
    entries = {info.array_oid: TypeEntry(info.array_oid, "b", element=info.oid) for info in REGISTRY}
    return form_of(oid, typmod, entries)


@pytest.mark.parametrize(("name", "lake", "form"), list(_rows()), ids=str)
def test_a_type_becomes_what_the_page_says(name: str, lake: str, form: str) -> None:
    expected = arrow_type(LAKE.get(lake, lake)), LAKE.get(form, form)
    assert _made(STAND_FOR.get(name, name)) == expected


def test_every_type_that_has_a_form_of_its_own_is_on_the_page() -> None:
    named = {_oid(STAND_FOR.get(name, name))[0] for name, _, _ in _rows()}
    special = {info.oid for info in REGISTRY if form_of(info.oid, -1, {})[1] != "text"}
    assert special - named == set()
    assert len(special) == 11


def test_the_cases_try_every_type_of_the_page() -> None:
    tried = {re.sub(r"\(-?\d+(,-?\d+)?\)", "", of.name) for of in types()}
    named = {re.sub(r"\(.*\)", "", STAND_FOR.get(name, name)) for name, _, _ in _rows()}
    assert named - tried == set()


@pytest.mark.parametrize(("name", "lake", "form"), list(_rows(_MYSQL)), ids=str)
def test_a_type_of_mysql_becomes_what_the_page_says(name: str, lake: str, form: str) -> None:
    made = mysql_column("c", STAND_FOR_MYSQL.get(name, name), "utf8mb4")
    assert (made.type, made.form) == (arrow_type(LAKE.get(lake, lake)), form)


def test_the_cases_try_every_type_of_the_page_of_mysql() -> None:
    tried = {_word(of.name) for of in types("mysql.txt", "mysql_alone.txt", "mariadb_alone.txt")}
    named = {_word(name) for name, _, _ in _rows(_MYSQL)}
    # What is stored as another of them is.
    alike = {"tinyblob", "mediumblob", "linestring", "polygon", "multipoint", "multilinestring"}
    assert named - tried == {*alike, "multipolygon", "geometrycollection"}


def _word(name: str) -> str:
    return re.split(r"\W", name)[0]
