"""The parser of statements: ours by recursive descent; any other is a query for Spark.

    CREATE [MATERIALIZED] SOURCE [IF NOT EXISTS] name FROM kind CONNECTION '...' [option '...' ...]
    CREATE [MATERIALIZED] VIEWS FROM SOURCE name [( table [, table ...] )]
    CREATE [OR REPLACE] [MATERIALIZED] VIEW name AS query
    SHOW SOURCES | SHOW VIEWS | SHOW TABLES | SHOW CREATE SOURCE name | SHOW CREATE VIEW name
    DROP SOURCE [IF EXISTS] name | DROP VIEW [IF EXISTS] name

Each kind of source declares its keyword and its options (`sources.registry`): `FROM POSTGRES CONNECTION '...'
PUBLICATION '...'`. Keywords match in any case; a name is kept as written, quoted or not. A statement that
would change anything but the lake's registry is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NoReturn

from headrace.core.errors import Misconfigured
from headrace.core.names import quote_identifier
from headrace.sources import registry
from headrace.sources.contract.values import Declaration
from headrace.sql.tokens import SqlToken, malformed_error, tokens

_WRITES = frozenset(
    """INSERT UPDATE DELETE MERGE TRUNCATE ALTER LOAD DROP CREATE REPLACE MSCK REPAIR ANALYZE
    REFRESH COMMENT EXPORT IMPORT GRANT REVOKE ADD""".split()
)


@dataclass(frozen=True, slots=True)
class CreateSource:
    """CREATE SOURCE."""

    name: str
    kind: str
    connection: str
    options: Mapping[str, str]
    is_materialized: bool
    lenient: bool  # IF NOT EXISTS


@dataclass(frozen=True, slots=True)
class CreateViews:
    """CREATE VIEWS FROM SOURCE; no tables means all."""

    source: str
    tables: tuple[str, ...]  # schema.table or table, quoted as on the command line
    is_materialized: bool


@dataclass(frozen=True, slots=True)
class CreateView:
    """CREATE VIEW ... AS."""

    name: str
    query: str
    is_materialized: bool
    replace: bool


@dataclass(frozen=True, slots=True)
class Show:
    """SHOW SOURCES, VIEWS, TABLES; with a name SHOW CREATE SOURCE, SHOW CREATE VIEW."""

    what: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DropStatement:
    """DROP SOURCE, DROP VIEW."""

    what: str
    name: str
    lenient: bool  # IF EXISTS


@dataclass(frozen=True, slots=True)
class SparkQuery:
    """Any other text: a query for Spark."""

    text: str


Statement = CreateSource | CreateViews | CreateView | Show | DropStatement | SparkQuery


def parse(sql: str) -> Statement:
    """The one statement that the text holds."""
    reader = _Reader(sql)
    found = _own(reader)
    if found is not None:
        return found
    _only_reads(reader)
    return SparkQuery(sql)


class _Reader:
    """The tokens of one statement, read from left to right."""

    def __init__(self, sql: str) -> None:
        self.sql = sql
        self.tokens = tokens(sql)
        self.at = 0

    @property
    def token(self) -> SqlToken | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def fail(self, expectation: str) -> NoReturn:
        place = self.token.start if self.token else len(self.sql.rstrip())
        raise malformed_error(self.sql, place, f"{expectation} is expected")

    def ahead(self, *words: str) -> bool:
        """Tell whether these keywords come next."""
        following = self.tokens[self.at : self.at + len(words)]
        return tuple(token.keyword for token in following) == words

    def take(self, *words: str) -> bool:
        if self.ahead(*words):
            self.at += len(words)
            return True
        return False

    def need(self, *words: str) -> None:
        for word in words:
            if not self.take(word):
                self.fail(word)

    def symbol(self, text: str) -> bool:
        if self.token is not None and self.token.kind == "symbol" and self.token.text == text:
            self.at += 1
            return True
        return False

    def name(self) -> str:
        name = self.token.name if self.token else None
        if not name:
            self.fail("a name")
        self.at += 1
        return name

    def string(self, what: str) -> str:
        if self.token is None or self.token.kind != "text":
            self.fail(f"{what} between single quotes")
        value = self.token.value
        self.at += 1
        return value

    def end(self) -> None:
        if self.token is not None:
            self.fail("the end of the statement")


def _own(reader: _Reader) -> Statement | None:
    """One of our statements; None if the text does not begin like one."""
    begin = reader.at
    if reader.take("CREATE"):
        replace = reader.take("OR", "REPLACE")
        materialized = reader.take("MATERIALIZED")
        if reader.take("SOURCE") and not replace:
            return _create_source(reader, materialized)
        if reader.take("VIEWS") and not replace:
            return _create_views(reader, materialized)
        if reader.take("VIEW"):
            return _create_view(reader, materialized, replace)
    elif reader.take("SHOW"):
        return _show(reader, begin)
    elif reader.ahead("DROP", "SOURCE") or reader.ahead("DROP", "VIEW"):
        return _drop(reader)
    reader.at = begin
    return None


def _create_source(reader: _Reader, materialized: bool) -> CreateSource:
    lenient = reader.take("IF", "NOT", "EXISTS")
    name = reader.name()
    reader.need("FROM")
    declared = _kind(reader)
    reader.need("CONNECTION")
    connection = reader.string("a connection")
    options = {}
    for option in declared.in_sql:
        reader.need(option.name.upper())
        options[option.name] = reader.string(f"a {option.name}")
    reader.end()
    return CreateSource(name, declared.kind, connection, options, materialized, lenient)


def _kind(reader: _Reader) -> Declaration:
    known = [registry.declaration(kind) for kind in registry.kinds()]
    found = next((each for each in known if reader.take(each.keyword)), None)
    return found or reader.fail(" or ".join(each.keyword for each in known))


def forms_of_create_source() -> str:
    """Spell CREATE SOURCE for each kind of source, for a hint."""
    known = [registry.declaration(kind) for kind in registry.kinds()]
    return "; or ".join(
        f"CREATE SOURCE name FROM {each.keyword} CONNECTION '...'"
        + "".join(f" {option.name.upper()} '...'" for option in each.in_sql)
        for each in known
    )


def _create_views(reader: _Reader, materialized: bool) -> CreateViews:
    reader.need("FROM", "SOURCE")
    source = reader.name()
    names: list[str] = []
    if reader.symbol("("):
        names.append(_table(reader))
        while reader.symbol(","):
            names.append(_table(reader))
        if not reader.symbol(")"):
            reader.fail("a comma or a closing parenthesis")
    reader.end()
    return CreateViews(source, tuple(names), materialized)


def _table(reader: _Reader) -> str:
    parts = [reader.name()]
    while reader.symbol("."):
        parts.append(reader.name())
    if len(parts) > 2:
        reader.fail("a table as schema.table")
    return ".".join(map(quote_identifier, parts))


def _create_view(reader: _Reader, materialized: bool, replace: bool) -> CreateView:
    name = reader.name()
    reader.need("AS")
    if reader.token is None:
        reader.fail("a query")
    query = reader.sql[reader.token.start :].rstrip()
    _only_reads(reader)
    return CreateView(name, query, materialized, replace)


def _show(reader: _Reader, begin: int) -> Show | None:
    for what in ("SOURCES", "VIEWS", "TABLES"):
        if reader.take(what):
            reader.end()
            return Show(what)
    for what in ("SOURCE", "VIEW"):
        if reader.take("CREATE", what):
            name = reader.name()
            reader.end()
            return Show(what, name)
    reader.at = begin
    return None


def _drop(reader: _Reader) -> DropStatement:
    reader.need("DROP")
    what = "SOURCE" if reader.take("SOURCE") else "VIEW"
    if what == "VIEW":
        reader.need("VIEW")
    lenient = reader.take("IF", "EXISTS")
    name = reader.name()
    reader.end()
    return DropStatement(what, name, lenient)


def _only_reads(reader: _Reader) -> None:
    """Refuse a Spark statement that would write outside of the lake."""
    token = reader.token
    if token is not None and token.keyword in _WRITES:
        raise Misconfigured(
            "SQL_ONLY_READS",
            f"headrace sql does not {token.keyword}: what a lake holds comes from its sources",
            hint="read with SELECT; CREATE VIEW keeps a query in the lake",
        )
