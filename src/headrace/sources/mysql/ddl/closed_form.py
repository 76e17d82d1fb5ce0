"""ALTER TABLE in a closed form: statements whose every clause says all that it does to columns.

    ADD [COLUMN] [IF NOT EXISTS] name TYPE [NOT NULL] [DEFAULT constant] [FIRST | AFTER name]
    DROP [COLUMN] [IF EXISTS] name
    RENAME COLUMN name TO name
    CHANGE name name TYPE ...,  MODIFY name TYPE ...
    CONVERT TO CHARACTER SET name
    DEFAULT CHARACTER SET name, COLLATE name
    any clause that `alterations` lists as harmless

A statement has no closed form if it has a clause, type, attribute or default that is not listed here: DEFAULT
(an expression), GENERATED, REFERENCES, ON UPDATE, SERIAL, IGNORE. This module does not decide what the words
mean for rows: that needs the catalog (`ddl.evidence`). It promises nothing about types, which depend on
modes, on defaults of the table and on the server.

It spells the type that a statement gives to a column as the catalog would print it:

    INTEGER(11) UNSIGNED     int unsigned         NUMERIC(8)       decimal(8,0)
    bool                     tinyint              REAL             double
    CHARACTER SET utf8       utf8mb3              enum('a', 'b')   enum('a','b')

The type is only compared: does the catalog show the work of this statement, or of a later one
(`ddl.evidence`)? So a wrong spelling costs a copy, and no more. If the catalog's spelling depends on more
than the words, the statement has no closed form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from headrace.sources.mysql.ddl import alterations
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

_REAL_AS_FLOAT = 1 << 0
_LENGTH = re.compile(r"\d{1,5}", re.ASCII)
_LABEL = re.compile(r"[^'\"\\]*")  # labels that the catalog prints as they were typed
_SYNONYMS: Mapping[str, str] = {
    "BOOL": "tinyint", "BOOLEAN": "tinyint", "INT1": "tinyint", "INT2": "smallint", "INT3": "mediumint",
    "INT4": "int", "INT8": "bigint", "INTEGER": "int", "DEC": "decimal", "FIXED": "decimal",
    "NUMERIC": "decimal", "CHARACTER": "char", "FLOAT4": "float", "FLOAT8": "double", "REAL": "double",
    "GEOMETRYCOLLECTION": "geomcollection",
}  # fmt: skip
_WITHOUT = frozenset(
    """date geomcollection geometry inet4 inet6 json linestring longblob longtext mediumblob mediumtext
    multilinestring multipoint multipolygon point polygon tinyblob tinytext blob text uuid""".split()
)
_WHOLE = frozenset("tinyint smallint mediumint int bigint year".split())  # a width changes nothing
_LENGTHS = frozenset("bit char binary".split())  # their length is 1 by default
_MOMENTS = frozenset("datetime timestamp time".split())
_FLOATS = frozenset("float double".split())
_COUNTS: Mapping[str, Collection[int]] = {  # of arguments in parentheses
    **dict.fromkeys(_WITHOUT | _WHOLE, (0,)),
    **dict.fromkeys(_LENGTHS | {"varchar", "varbinary", "vector"}, (1,)),
    **dict.fromkeys(_MOMENTS, (0, 1)),
    **dict.fromkeys(_FLOATS, (0, 2)),
    "decimal": (2,),
    "enum": range(1, 1 << 16),
    "set": range(1, 65),
}
_NUMBERS = _WHOLE | _FLOATS | {"decimal"}
_SINGLE_DIGITS = 24  # of FLOAT(p): more bits make it a double


def spelled_type(words: StatementWords) -> str:
    """Read a type with its facets; raises `Unreadable` if its spelling in the catalog is not certain."""
    typed = words.read().keyword
    if typed == "REAL" and words.dialect.sql_mode & _REAL_AS_FLOAT:
        raise Unreadable
    base = _SYNONYMS.get(typed, typed.lower())
    if base == "double":
        words.skip("PRECISION")
    given = _arguments(words)
    sign = _sign(words) if base in _NUMBERS else ""
    if base in ("char", "varchar", "enum", "set") or base.endswith("text"):
        words.skip("BINARY")  # a collation
    if base == "json" and words.dialect.mariadb:
        return "longtext"
    return _show(base, given) + sign


def spelled_charset(name: str) -> str:
    """The catalog's name of the charset that has this name, or whose collation has it."""
    charset = name.lower().partition("_")[0]
    return "utf8mb3" if charset == "utf8" else charset


def _sign(words: StatementWords) -> str:
    """Read UNSIGNED, which ZEROFILL implies."""
    sign = ""
    while words.next.keyword in ("SIGNED", "UNSIGNED", "ZEROFILL"):
        sign = " unsigned" if words.read().keyword != "SIGNED" else sign
    return sign


def _show(base: str, given: tuple[str, ...]) -> str:
    if base == "decimal":
        given = (*given, *("10", "0")[len(given) :])
    elif base in _LENGTHS and not given:
        given = ("1",)
    elif base in _WHOLE or (base in _MOMENTS and given == ("0",)):
        given = ()
    elif base == "float" and len(given) == 1:
        base, given = ("float" if int(given[0]) <= _SINGLE_DIGITS else "double"), ()
    if len(given) not in _COUNTS.get(base, ()):
        raise Unreadable
    return f"{base}({','.join(given)})" if given else base


def _arguments(words: StatementWords) -> tuple[str, ...]:
    """Read numbers or labels in parentheses, if they come next."""
    if not words.sign("("):
        return ()
    found = [_argument(words)]
    while words.sign(","):
        found.append(_argument(words))
    if not words.sign(")"):
        raise Unreadable
    return tuple(found)


def _argument(words: StatementWords) -> str:
    token = words.read()
    if token.sign is Sign.WORD and _LENGTH.fullmatch(token.value):
        return str(int(token.value))
    if token.sign is Sign.TEXT and _LABEL.fullmatch(token.value):
        return f"'{token.value}'"
    raise Unreadable


_STRICT = (1 << 21) | (1 << 22)  # STRICT_TRANS_TABLES, STRICT_ALL_TABLES: the same for InnoDB
_OWN_MODES = ~0xFFFFFFFF  # MariaDB's own; with one of them an empty text is NULL
_NUMBER = re.compile(r"\d{1,65}", re.ASCII)
_PLAIN = re.compile(r"[ !#-&(-\[\]-~]*")  # printed ASCII without quotes and backslashes
_NOT_A_COLUMN = frozenset(
    "INDEX KEY UNIQUE FULLTEXT SPATIAL FOREIGN CONSTRAINT CHECK PRIMARY PARTITION".split()
)


@dataclass(frozen=True, slots=True)
class _Definition:
    """The definition of a column, as far as it is needed."""

    type: str
    default: str | None = None
    is_text: bool = False
    says_null: bool = False
    counts: bool = False
    after: str | None = None
    nullable: bool | None = None
    charset: str = ""


def alteration(words: StatementWords) -> AlterStatement:
    """Read an ALTER TABLE to its end; raises `Unreadable` if it has no closed form."""
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
    """Read a type, its facets, and the attributes behind it."""
    charset = "utf8mb4" if words.next.keyword == "JSON" else ""  # MariaDB stores JSON as text
    found = _Definition(spelled_type(words), charset=charset)
    while not _is_end(words.next):
        found = _attribute(words, found)
    return found


def _declaration(found: _Definition) -> ColumnDeclaration:
    return ColumnDeclaration(found.type, not_null=found.nullable is False, charset=found.charset)


def _with_null(found: _Definition, *, nullable: bool) -> _Definition:
    if found.nullable is not None:
        raise Unreadable  # it comes twice
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
    """Read the charset of a column, by its name or by a collation."""
    return spelled_charset(words.name()) if words.skip("COLLATE") else _charset(words)


def _default(words: StatementWords, found: _Definition) -> _Definition:
    """Read a constant default whose meaning depends on no charset, escape or mode."""
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
