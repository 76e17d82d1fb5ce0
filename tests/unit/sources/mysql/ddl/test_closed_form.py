"""Statements of a closed form, a case a line with their steps; and those that have none."""

from __future__ import annotations

import pytest

from headrace.sources.mysql.ddl.statements import BinlogServer, QueryEvent, effects
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
from headrace.sources.mysql.ddl.tokens import ANSI_QUOTES

MYSQL, MARIADB = BinlogServer(False, 90704), BinlogServer(True, 101118)
STRICT = 1 << 21
INT = ColumnDeclaration("int")

CLOSED: dict[str, list[Step]] = {
    "ADD n int": [Add("n", declaration=INT)],
    "ADD COLUMN IF NOT EXISTS `n` INT(11) UNSIGNED ZEROFILL NULL": [
        Add("n", lenient=True, declaration=ColumnDeclaration("int unsigned"))
    ],
    "ADD n varchar(9) CHARACTER SET latin1 COLLATE latin1_bin DEFAULT 'it is' FIRST": [
        Add(
            "n",
            "it is",
            is_text=True,
            after=FIRST,
            declaration=ColumnDeclaration("varchar(9)", charset="latin1"),
        )
    ],
    "ADD n enum('a,b', ')') NOT NULL AFTER `x y`": [
        Add("n", after="x y", declaration=ColumnDeclaration("enum('a,b',')')", not_null=True))
    ],
    "ADD n decimal(9, 3) DEFAULT -1.50 COMMENT 'it''s', ADD KEY (n)": [
        Add("n", "-1.50", declaration=ColumnDeclaration("decimal(9,3)"))
    ],
    "ADD n bool DEFAULT TRUE UNIQUE KEY, ALGORITHM = INSTANT, LOCK=NONE": [
        Add("n", "1", declaration=ColumnDeclaration("tinyint"))
    ],
    "ADD n int DEFAULT NULL": [Add("n", says_null=True, declaration=INT)],
    "DROP n, DROP COLUMN IF EXISTS m RESTRICT, DROP INDEX i": [
        DropColumn("n"),
        DropColumn("m", lenient=True),
    ],
    "RENAME COLUMN a TO b, RENAME INDEX i TO j": [Rename("a", "b")],
    "CHANGE a b bigint NOT NULL AUTO_INCREMENT": [
        Retype("a", "b", counts=True, declaration=ColumnDeclaration("bigint", not_null=True))
    ],
    "MODIFY COLUMN a double precision AFTER b": [
        Retype("a", "a", after="b", declaration=ColumnDeclaration("double"))
    ],
    "CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, ENGINE=InnoDB": [Recode("utf8mb4")],
    "DEFAULT CHARACTER SET = 'utf8', ADD n int": [Default("utf8mb3"), Add("n", declaration=INT)],
    "ROW_FORMAT=DYNAMIC COLLATE latin1_bin COMMENT 'x', ALGORITHM = COPY": [Default("latin1")],
    "COMMENT = 'x' AUTO_INCREMENT 7, ADD CONSTRAINT f FOREIGN KEY (a) REFERENCES u (id), DROP n": [
        DropColumn("n")
    ],
    "/*!50000 DROP n */ -- , DROP m": [DropColumn("n")],
}
NOT_CLOSED = """
ADD n int DEFAULT (1)
ADD n int DEFAULT 1 + 1
ADD n int DEFAULT 0x41
ADD n varchar(9) DEFAULT 'it''s'
ADD n varchar(9) DEFAULT 'a\\n'
ADD n varchar(9) DEFAULT 'é'
ADD n varchar(9) DEFAULT 'a' 'b'
ADD n varchar(9) DEFAULT _latin1'a'
ADD n int DEFAULT 1 DEFAULT NULL
ADD n datetime DEFAULT CURRENT_TIMESTAMP
ADD n datetime ON UPDATE CURRENT_TIMESTAMP
ADD n int AUTO_INCREMENT
ADD n int PRIMARY KEY
ADD n serial
ADD n int GENERATED ALWAYS AS (1)
ADD n int AS (1) STORED
ADD n int REFERENCES u (id)
ADD n int CHECK (n > 1)
ADD n odd_type
ADD (n int, m int)
ADD n int; DROP m
ADD n int, RENAME TO u
ADD n int, DROP PARTITION p
ADD n int, ADD PRIMARY KEY (n)
ADD n int, DISCARD TABLESPACE
ADD n int, FROBNICATE
ADD SYSTEM VERSIONING
DROP PRIMARY KEY
MODIFY n int ENGINE_ATTRIBUTE = '{}'
CONVERT TO CHARACTER SET DEFAULT COLLATE
CONVERT PARTITION p TO TABLE u
"""


def steps(clauses: str, server: BinlogServer = MYSQL, mode: int = 0, error: int = 0) -> AlterStatement | None:
    """The steps of the one effect of an ALTER TABLE, if it has any."""
    query = QueryEvent(f"ALTER TABLE t {clauses}".encode(), b"shop", mode, 255, None, error)
    found = effects(query, server)
    return AlterStatement.parse(found[0].steps) if len(found) == 1 and found[0].steps else None


@pytest.mark.parametrize("server", [MYSQL, MARIADB])
@pytest.mark.parametrize("clauses", CLOSED)
def test_a_statement_says_its_steps(clauses: str, server: BinlogServer) -> None:
    assert steps(clauses, server) == AlterStatement(tuple(CLOSED[clauses]), strict=False)


@pytest.mark.parametrize("clauses", NOT_CLOSED.strip().splitlines())
def test_a_statement_of_which_a_word_is_not_listed_has_none(clauses: str) -> None:
    assert steps(clauses) is None
    assert steps(clauses, MARIADB) is None


def test_a_json_of_mariadb_is_a_text_of_its_own_charset() -> None:
    for server, kind in ((MYSQL, "json"), (MARIADB, "longtext")):
        said = ColumnDeclaration(kind, charset="utf8mb4")
        assert steps("ADD n json", server) == AlterStatement((Add("n", declaration=said),))


def test_the_mode_of_the_session_counts() -> None:
    assert steps("ADD n int", mode=STRICT) == AlterStatement((Add("n", declaration=INT),), strict=True)
    assert steps('DROP "n"', mode=ANSI_QUOTES) == AlterStatement((DropColumn("n"),))
    assert steps('DROP "n"') is None
    assert steps("ADD n varchar(9) DEFAULT ''", MARIADB, mode=1 << 32) is None
    assert steps("ADD n int", error=1205) is None


@pytest.mark.parametrize(
    "text", ["ALTER IGNORE TABLE t DROP n", "SET STATEMENT a=1 FOR ALTER TABLE t DROP n"]
)
def test_other_ways_to_alter_have_no_closed_form(text: str) -> None:
    [effect] = effects(QueryEvent(text.encode(), b"shop", 0, 255, None), MARIADB)
    assert effect.steps == b""


def test_a_temporary_table_may_hide_the_one_that_is_meant() -> None:
    query = QueryEvent(b"ALTER TABLE t DROP n", b"shop", 0, 255, None)
    assert [effect.steps for effect in effects(query, MYSQL, temporary=True)] == [b""]


def test_steps_are_read_as_they_were_written() -> None:
    every = AlterStatement(tuple(step for steps_ in CLOSED.values() for step in steps_), strict=True)
    assert AlterStatement.parse(every.pack()) == every
