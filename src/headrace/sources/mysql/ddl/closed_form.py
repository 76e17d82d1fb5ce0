"""ALTER TABLE in a closed form: statements whose every clause says all that it does to columns.

    ADD [COLUMN] [IF NOT EXISTS] name TYPE [NOT NULL] [DEFAULT constant] [FIRST | AFTER name]
    DROP [COLUMN] [IF EXISTS] name
    RENAME COLUMN name TO name
    CHANGE name name TYPE ...,  MODIFY name TYPE ...
    CONVERT TO CHARACTER SET name
    DEFAULT CHARACTER SET name, COLLATE name
    whatever `alterations` knows to be harmless

A clause, type, attribute or default that is not listed here has no closed form, and then the statement has
none: DEFAULT (an expression), GENERATED, REFERENCES, ON UPDATE, SERIAL, IGNORE. What the words mean for rows
is not decided here but where the catalog is known (`catalog.evidence`); so nothing is promised about types,
which hang on modes, defaults of the table and the server.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.sources.mysql.ddl import alterations
from headrace.sources.mysql.ddl.spelled_types import spelled_charset, spelled_type
from headrace.sources.mysql.ddl.steps import (
    FIRST,
    Add,
    AlterStatement,
    ColumnDeclaration,
    Default,
    DropColumn,
    Reason,
    Recode,
    Rename,
    Retype,
    Step,
)
from headrace.sources.mysql.ddl.tokens import MysqlToken, Sign, StatementWords, Unreadable

_STRICT = (1 << 21) | (1 << 22)  # STRICT_TRANS_TABLES, STRICT_ALL_TABLES: InnoDB knows no difference
_OWN_MODES = ~0xFFFFFFFF  # MariaDB's, by which the empty text may be NULL
_NUMBER = re.compile(r"\d{1,65}", re.ASCII)
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")  # printed ASCII without quotes and backslashes
_NOT_A_COLUMN = frozenset(
    "INDEX KEY UNIQUE FULLTEXT SPATIAL FOREIGN CONSTRAINT CHECK PRIMARY PARTITION".split()
)


@dataclass(frozen=True, slots=True)
class _Definition:
    """The definition of a column, as far as its words are asked for."""

    type: str
    default: str | None = None
    is_text: bool = False
    says_null: bool = False
    counts: bool = False
    after: str | None = None
    nullable: bool | None = None
    charset: str = ""


def alteration(words: StatementWords) -> AlterStatement:
    """Read an ALTER TABLE to its end; `Unreadable` where it has no closed form."""
    words.expect("ALTER")
    words.skip("ONLINE")
    words.expect("TABLE")
    words.skip("IF", "EXISTS")
    alterations.table(words)
    alterations.skip_wait(words)
    steps: list[Step] = []
    while words.next.sign is not Sign.END:
        steps += _clause(words)
        if not words.sign(","):
            break
    words.end()
    return AlterStatement(tuple(steps), strict=bool(words.dialect.sql_mode & _STRICT))


def _clause(words: StatementWords) -> Iterator[Step]:
    match words.next.keyword:
        case "ADD":
            yield from _add(words)
        case "DROP":
            yield from _drop(words)
        case "RENAME":
            yield from _rename(words)
        case "CHANGE" | "MODIFY":
            yield _retype(words)
        case "CONVERT":
            yield _recode(words)
        case "EXCHANGE":
            raise Unreadable
        case _ if alterations.is_option(words):
            yield from _set_default(words)
        case first:
            is_harmless = alterations.reason(words) is None
            _pass_harmless(words, is_harmless, is_last=alterations.ends_statement(first, words))


def _pass_harmless(words: StatementWords, is_harmless: bool, *, is_last: bool = False) -> None:
    if not is_harmless:
        raise Unreadable
    alterations.pass_over(words, is_last=is_last)


def _set_default(words: StatementWords) -> Iterator[Step]:
    reason, charset = alterations.options(words)
    _pass_harmless(words, reason in (None, Reason.DEFAULTS))
    if charset:
        yield Default(spelled_charset(charset))


def _add(words: StatementWords) -> Iterator[Step]:
    words.expect("ADD")
    if not words.skip("COLUMN") and words.next.keyword in _NOT_A_COLUMN | {"VECTOR"}:
        _pass_harmless(words, alterations.of_addition(words) is None)
        return
    lenient = words.skip("IF", "NOT", "EXISTS")
    name, found = words.name(), _definition(words)
    if found.counts:
        raise Unreadable
    yield Add(name, found.default, found.is_text, found.says_null, found.after, lenient, _declaration(found))


def _drop(words: StatementWords) -> Iterator[Step]:
    words.expect("DROP")
    if not words.skip("COLUMN") and words.next.keyword in _NOT_A_COLUMN:
        _pass_harmless(words, alterations.of_removal(words) is None)
        return
    lenient = words.skip("IF", "EXISTS")
    yield DropColumn(words.name(), lenient)
    words.skip_any("RESTRICT", "CASCADE")


def _rename(words: StatementWords) -> Iterator[Step]:
    words.expect("RENAME")
    if words.next.keyword in ("INDEX", "KEY"):
        alterations.pass_over(words)
        return
    words.expect("COLUMN")
    lenient = words.skip("IF", "EXISTS")
    old = words.name()
    words.expect("TO")
    yield Rename(old, words.name(), lenient)


def _retype(words: StatementWords) -> Step:
    changes = words.read().keyword == "CHANGE"
    words.skip("COLUMN")
    lenient = words.skip("IF", "EXISTS")
    old = words.name()
    new = words.name() if changes else old
    found = _definition(words)
    return Retype(old, new, found.after, found.counts, lenient, _declaration(found))


def _recode(words: StatementWords) -> Step:
    words.expect("CONVERT")
    words.expect("TO")
    charset = _charset(words)
    if words.skip("COLLATE"):
        words.name()
    return Recode(charset)


def _charset(words: StatementWords) -> str:
    if not words.skip("CHARSET"):
        words.expect("CHARACTER")
        words.expect("SET")
    return spelled_charset(words.name())


def _definition(words: StatementWords) -> _Definition:
    """A type, its facets, and the attributes behind it."""
    charset = "utf8mb4" if words.next.keyword == "JSON" else ""  # MariaDB keeps it as a text
    found = _Definition(spelled_type(words), charset=charset)
    while not _is_end(words.next):
        found = _attribute(words, found)
    return found


def _declaration(found: _Definition) -> ColumnDeclaration:
    return ColumnDeclaration(found.type, not_null=found.nullable is False, charset=found.charset)


def _with_null(found: _Definition, *, nullable: bool) -> _Definition:
    if found.nullable is not None:
        raise Unreadable  # said twice
    return replace(found, nullable=nullable)


def _is_end(token: MysqlToken) -> bool:
    return token.sign is Sign.END or token in ((Sign.OTHER, ","), (Sign.OTHER, ";"))


def _attribute(words: StatementWords, found: _Definition) -> _Definition:
    match words.next.keyword:
        case "NOT":
            words.skip("NOT", "NULL")
            return _with_null(found, nullable=False)
        case "DEFAULT":
            return _default(words, found)
        case "COLLATE" | "CHARACTER" | "CHARSET":
            return replace(found, charset=_own_charset(words))
        case "FIRST" | "AFTER":
            return replace(found, after=FIRST if words.read().keyword == "FIRST" else words.name())
    first = words.read().keyword
    match first:
        case "NULL":
            return _with_null(found, nullable=True)
        case "AUTO_INCREMENT":
            return replace(found, counts=True)
        case "UNIQUE":
            words.skip("KEY")
        case "COMMENT" if words.read().sign is Sign.TEXT:
            pass
        case "VISIBLE" | "INVISIBLE":
            pass
        case _:
            raise Unreadable
    return found


def _own_charset(words: StatementWords) -> str:
    """The charset of a column, by its name or by a collation of it."""
    return spelled_charset(words.name()) if words.skip("COLLATE") else _charset(words)


def _default(words: StatementWords, found: _Definition) -> _Definition:
    """A constant whose meaning hangs on no charset, escape or mode."""
    words.expect("DEFAULT")
    if found.says_null or found.default is not None:
        raise Unreadable
    token = words.next
    if token.sign is Sign.TEXT:
        words.read()
        own = words.dialect.mariadb and words.dialect.sql_mode & _OWN_MODES
        if _PLAIN.fullmatch(token.value) is None or (own and not token.value):
            raise Unreadable
        return replace(found, default=token.value, is_text=True)
    if words.skip("NULL"):
        return replace(found, says_null=True)
    if token.keyword in ("TRUE", "FALSE"):
        words.read()
        return replace(found, default="1" if token.keyword == "TRUE" else "0")
    return replace(found, default=_number(words))


def _number(words: StatementWords) -> str:
    sign = "-" if words.sign("-") else ""
    words.sign("+")
    text = _digits(words)
    return sign + (f"{text}.{_digits(words)}" if words.sign(".") else text)


def _digits(words: StatementWords) -> str:
    token = words.read()
    if token.sign is not Sign.WORD or _NUMBER.fullmatch(token.value) is None:
        raise Unreadable
    return token.value
