"""The type that a statement gives to a column, as the catalog would print it.

    INTEGER(11) UNSIGNED     int unsigned         NUMERIC(8)       decimal(8,0)
    bool                     tinyint              REAL             double
    CHARACTER SET utf8       utf8mb3              enum('a', 'b')   enum('a','b')

Nothing is made of it but a comparison: whether the look at the catalog shows what this statement made, or
what a later one did (`catalog.evidence`). So a wrong word costs a copy, and no more; where the catalog's
spelling hangs on more than the words, the statement has no closed form.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from headrace.sources.mysql.ddl.tokens import Sign, StatementWords, Unreadable

_REAL_AS_FLOAT = 1 << 0
_NUMBER = re.compile(r"\d{1,5}", re.ASCII)
_LABEL = re.compile(r"[^'\"\\]*")  # what the catalog prints as it was typed
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
_LENGTHS = frozenset("bit char binary".split())  # 1, where none is said
_MOMENTS = frozenset("datetime timestamp time".split())
_FLOATS = frozenset("float double".split())
_COUNTS: Mapping[str, Collection[int]] = {  # of what stands in parentheses
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
    """Read a type with its facets; `Unreadable` where its spelling in the catalog is not certain."""
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
    """The charset of this name, or of the collation of this name, as the catalog calls it."""
    charset = name.lower().partition("_")[0]
    return "utf8mb3" if charset == "utf8" else charset


def _sign(words: StatementWords) -> str:
    """UNSIGNED, which ZEROFILL brings with it."""
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
    """Numbers or labels in parentheses, if some come next."""
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
    if token.sign is Sign.WORD and _NUMBER.fullmatch(token.value):
        return str(int(token.value))
    if token.sign is Sign.TEXT and _LABEL.fullmatch(token.value):
        return f"'{token.value}'"
    raise Unreadable
