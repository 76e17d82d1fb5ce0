"""Types as statements write them, and as the catalog prints them."""

from __future__ import annotations

import pytest

from headrace.sources.mysql.ddl import closed_form
from headrace.sources.mysql.ddl.steps import Add
from headrace.sources.mysql.ddl.tokens import Dialect, StatementWords, Unreadable

SHOWN = {
    "INTEGER(11) ZEROFILL": "int unsigned",
    "bool": "tinyint",
    "INT8 UNSIGNED": "bigint unsigned",
    "numeric": "decimal(10,0)",
    "dec(8)": "decimal(8,0)",
    "decimal(8, 2) unsigned": "decimal(8,2) unsigned",
    "double precision": "double",
    "real": "double",
    "float(24)": "float",
    "float(25)": "double",
    "float(7,2)": "float(7,2)",
    "character": "char(1)",
    "varchar(20) character set utf8mb4": "varchar(20)",
    "bit": "bit(1)",
    "datetime(0)": "datetime",
    "timestamp(3)": "timestamp(3)",
    "year(4)": "year",
    "enum('a', 'ü b')": "enum('a','ü b')",
    "geometrycollection": "geomcollection",
}
UNCERTAIN = (
    "text(100)",
    "char varying(9)",
    "varchar",
    "enum('it''s')",
    "char(5) ascii",
    "point(1)",
    "serial",
)


def _added(definition: str, *, mode: int = 0, mariadb: bool = False) -> Add:
    words = StatementWords(f"ALTER TABLE t ADD c {definition}", Dialect(mariadb, 90704, mode))
    [step] = closed_form.alteration(words).steps
    assert isinstance(step, Add)
    return step


@pytest.mark.parametrize("typed", SHOWN)
def test_a_type_is_spelled_as_the_catalog_does(typed: str) -> None:
    assert _added(typed).declaration.type == SHOWN[typed]


@pytest.mark.parametrize("typed", UNCERTAIN)
def test_a_type_whose_spelling_is_not_certain_has_no_closed_form(typed: str) -> None:
    with pytest.raises(Unreadable):
        _added(typed)


def test_what_a_type_means_hangs_on_the_mode_and_the_server() -> None:
    with pytest.raises(Unreadable):
        _added("real", mode=1)
    assert _added("json", mariadb=True).declaration.type == "longtext"
    assert _added("json").declaration.type == "json"


def test_a_definition_says_whether_it_may_be_null_and_its_charset() -> None:
    said = _added("char(9) COLLATE utf8_bin NOT NULL").declaration
    assert (said.not_null, said.charset) == (True, "utf8mb3")
    assert not _added("char(9) NULL").declaration.not_null
    with pytest.raises(Unreadable):
        _added("char(9) NOT NULL NULL")
