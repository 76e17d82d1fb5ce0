"""Laws of reading statements: comments, blanks, case and quotes change nothing, no text survives."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from headrace.sources.mysql.ddl.alterations import Effect
from headrace.sources.mysql.ddl.statements import BinlogServer, QueryEvent, effects
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.ddl.tokens import ANSI_QUOTES
from tests.effort import examples

LAWS = examples(30)
SERVERS = st.sampled_from(
    [BinlogServer(False, 90704), BinlogServer(False, 80036), BinlogServer(True, 101118)]
)
NAMES = st.text(st.sampled_from("aZ_1$ü`'\"/*-# ;\\"), min_size=1, max_size=6)
SECRET = "s3cret"

# Keywords and signs; A and B stand for tables, M for a harmless text.
STATEMENTS: dict[str, list[tuple[Reason | None, str]]] = {
    "DROP TABLE IF EXISTS A , B": [(Reason.DROPPED, "A"), (Reason.DROPPED, "B")],
    "RENAME TABLE A TO B": [(Reason.RENAMED, "A"), (Reason.RENAMED, "B")],
    "TRUNCATE TABLE A": [(None, "A")],
    "CREATE TABLE A ( id int COMMENT M )": [(Reason.CREATED, "A")],
    "ALTER TABLE A COMMENT = M , DROP COLUMN c": [(Reason.ALTERED, "A")],
    "ALTER TABLE A ADD KEY k ( c ) COMMENT M , RENAME TO B": [(Reason.RENAMED, "A"), (Reason.RENAMED, "B")],
    "ALTER TABLE A EXCHANGE PARTITION p WITH TABLE B": [(Reason.PARTITIONS, "A"), (Reason.PARTITIONS, "B")],
    "ALTER TABLE A COMMENT M , ADD INDEX i ( c ) , AUTO_INCREMENT = 7": [(Reason.REBUILT, "A")],
    "CREATE USER u IDENTIFIED BY M": [],
    "SET PASSWORD = M": [],
}
GAPS = st.sampled_from(
    [" ", "\n", "\t ", "/**/", " /* DROP TABLE x; ' */ ", "-- `\n", "#'\n", "/*!99999 DROP TABLE x */", "\0 "]
)
TEXTS = st.text(st.sampled_from("aü`\"\\';,/*()- #"), max_size=12)


@st.composite
def written(draw: st.DrawFn) -> tuple[str, list[Effect]]:
    """A statement in some spelling, and what it does."""
    statement, expected = draw(st.sampled_from(sorted(STATEMENTS.items())))
    names = {"A": (draw(NAMES), draw(NAMES)), "B": (draw(NAMES), draw(NAMES))}
    parts = []
    for word in statement.split():
        if word in names:
            parts.append(".".join("`" + name.replace("`", "``") + "`" for name in names[word]))
        elif word == "M":
            text = SECRET + draw(TEXTS)
            parts.append(
                "'" + text.replace("\\", "\\\\").replace("'", draw(st.sampled_from(["''", "\\'"]))) + "'"
            )
        elif draw(st.booleans()) and word.isalpha():
            version = draw(st.sampled_from(["", "50001", "40100 "]))
            parts.append(f"/*!{version} {word.swapcase()}*/")
        else:
            parts.append(draw(st.sampled_from([word.lower(), word])))
    text = draw(GAPS) + "".join(part + draw(GAPS) for part in parts)
    return text, [Effect(reason, *names[which]) for reason, which in expected]


@LAWS
@given(written(), SERVERS, st.sampled_from([0, ANSI_QUOTES]))
def test_spelling_changes_nothing(case: tuple[str, list[Effect]], server: BinlogServer, mode: int) -> None:
    text, expected = case
    found = effects(QueryEvent(text.encode(), b"shop", mode, 255, None), server)
    assert [replace(each, steps=b"") for each in found] == expected
    assert SECRET not in str(found)


@LAWS
@given(written(), SERVERS, st.integers(0, 200))
def test_a_statement_that_is_cut_is_never_taken_for_a_truncation_of_another_table(
    case: tuple[str, list[Effect]], server: BinlogServer, at: int
) -> None:
    text, expected = case
    emptied = {effect for effect in expected if effect.reason is None}
    cut = effects(QueryEvent(text[:at].encode(), b"", 0, 255, None), server)
    assert {effect for effect in cut if effect.reason is None} <= emptied


@LAWS
@given(st.binary(max_size=60), st.integers(0, 300), st.binary(max_size=5), SERVERS)
def test_any_bytes_are_told_without_an_error(
    text: bytes, charset: int, database: bytes, server: BinlogServer
) -> None:
    for query in (
        QueryEvent(text, database, 0, charset, None),
        QueryEvent(b"ALTER TABLE t " + text, b"d", 0, charset, None),
    ):
        assert all(isinstance(effect, Effect) for effect in effects(query, server))
