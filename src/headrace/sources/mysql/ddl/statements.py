"""The effects of statements on tables: which a statement drops, renames, empties or alters.

    RENAME TABLE shop.a TO shop.b, ...     a and b are renamed
    TRUNCATE t                             t of the statement's database is emptied: data, like any row
    DROP DATABASE crm                      all of crm's tables are dropped
    ALTER TABLE t ADD INDEX (x)            t may be rebuilt: rows and columns stay, except computed values
    UPDATE t SET ...                       rows changed that were not logged as rows

Only a list of effects leaves this module, never the text of a statement. A statement that cannot be read may
concern every table, and so may words that are not known here: so a new release's DDL stops tables, and never
goes unnoticed. A new kind of CREATE makes an object that did not exist, so it concerns only the tables that
it names.

A change that was logged as a statement may have changed tables that it does not name, by views, triggers,
functions and cascades, which the log does not show. MySQL names the databases in which it changed rows, and
all their tables are concerned. For tables with foreign keys it names none: then every table is concerned.
MariaDB never names them: there every table is concerned, unless the statement writes constants into a system
table, as the heartbeats of hosted servers do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from headrace.sources.mysql.ddl import alterations, closed_form
from headrace.sources.mysql.ddl.alterations import Effect
from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.ddl.tokens import Dialect, Sign, StatementWords, Unreadable, text_of


class QueryEvent(NamedTuple):
    """A statement as it was logged. Never keep it, print it or raise it."""

    text: memoryview | bytes
    database: bytes
    sql_mode: int
    charset: int  # the number of its text's collation; 0: unknown
    databases: tuple[bytes, ...] | None  # those in which it changed rows; None: unknown
    error: int = 0  # the error with which it ended


_ANYTHING = (Effect(Reason.UNCLEAR),)
_ANALYZED = ("TABLE", "TABLES", "LOCAL", "NO_WRITE_TO_BINLOG")  # MariaDB's ANALYZE executes a change
_CHANGES = frozenset("INSERT REPLACE UPDATE DELETE LOAD WITH SELECT DO CALL VALUES IMPORT".split())
_WRITES = frozenset("INSERT REPLACE UPDATE DELETE".split())
_SYSTEM = "mysql"  # MariaDB allows no triggers on its tables
_READS = frozenset("SELECT TABLE WITH JOIN RETURNING".split())  # may read views, and call functions in them
# The words that may precede a parenthesis without being a stored function: native functions win over these.
_BEFORE = frozenset(
    "AND COALESCE CURRENT_TIMESTAMP IN KEY NOT NOW OR SET SYSDATE UNIX_TIMESTAMP VALUE VALUES WHERE".split()
)

# Statements that do not concern rows and columns of tables. A logged SET is one of passwords and roles.
_HARMLESS = frozenset("CHECK FLUSH GRANT INSTALL RELEASE REVOKE SAVEPOINT SET UNINSTALL".split())


@dataclass(frozen=True, slots=True)
class BinlogServer:
    """The server that ran the statements, by the format description in its binlog."""

    mariadb: bool
    version: int


def effects(query: QueryEvent, server: BinlogServer, *, temporary: bool = False) -> tuple[Effect, ...]:
    """Find the effects of a statement on tables; nothing of its text is kept.

    With `temporary` its session has temporary tables, which hide others of their names.
    """
    if not query.text:
        return _ANYTHING
    dialect = Dialect(server.mariadb, server.version, query.sql_mode)
    try:
        text = text_of(bytes(query.text), query.charset)
        database = query.database.decode()
        found = [each.within(database) for each in _effects(StatementWords(text, dialect), query)]
        for each in found:
            each.check_names()
    except (Unreadable, UnicodeError):
        return _ANYTHING
    if temporary:
        return tuple(map(_unclear, found))
    return _with_steps(found, StatementWords(text, dialect)) if query.error == 0 else tuple(found)


def _with_steps(found: list[Effect], words: StatementWords) -> tuple[Effect, ...]:
    """The one effect of an ALTER TABLE in a closed form, with its steps; else the effects that were found."""
    reasons = {each.reason for each in found}
    if not found or not reasons <= {Reason.ALTERED, Reason.DEFAULTS}:
        return tuple(found)
    if Reason.ALTERED in reasons:
        found = [replace(each, reason=Reason.ALTERED) for each in found]
    if len(set(found)) != 1:
        return tuple(found)
    try:
        steps = closed_form.alteration(words).pack()
    except Unreadable:
        return tuple(found)
    return (replace(found[0], steps=steps),)


def _unclear(effect: Effect) -> Effect:
    """The effect on a table that may be temporary: it must not remove rows of another table."""
    return effect if effect.reason is not None else replace(effect, reason=Reason.UNCLEAR)


def _effects(words: StatementWords, query: QueryEvent) -> tuple[Effect, ...]:
    while words.sign("("):
        pass
    first = words.read().keyword
    if first == "SET" and words.skip("STATEMENT"):
        first = _behind_settings(words)
    if first in _HARMLESS or (first == "ANALYZE" and words.next.keyword in _ANALYZED):
        return ()
    if first in _CHANGES:
        return tuple(_row_effects(first, words, query))
    reader = _READERS.get(first)
    if reader is None:
        return _ANYTHING
    return tuple(reader(words))


def _behind_settings(words: StatementWords) -> str:
    """Skip MariaDB's SET STATEMENT ... FOR; return the first word of the statement after it."""
    while words.next.keyword != "FOR":
        if words.sign("(") or words.read().sign is alterations.END:
            raise Unreadable
    words.read()
    return words.read().keyword


def _row_effects(verb: str, words: StatementWords, query: QueryEvent) -> Iterator[Effect]:
    """The effects of a change that was logged as a statement."""
    if words.dialect.mariadb:
        if not (verb in _WRITES and _writes_system_table(verb, words, query)):
            yield Effect(Reason.BY_STATEMENT)
        return
    # MySQL names no databases for the parent or child of a foreign key. The text names only one table, and a
    # trigger on it may write to any other: so every table is concerned.
    if not query.databases:
        yield Effect(Reason.BY_STATEMENT)
    for name in query.databases or ():
        yield Effect(Reason.BY_STATEMENT, name.decode())


def _writes_system_table(verb: str, words: StatementWords, query: QueryEvent) -> bool:
    """Tell whether a statement certainly changes only a system table."""
    words.skip_any("LOW_PRIORITY", "HIGH_PRIORITY", "DELAYED", "QUICK", "IGNORE", "INTO", "FROM")
    database, _ = alterations.table(words)
    if (query.database.decode() if database is None else database) != _SYSTEM:
        return False
    if verb in ("INSERT", "REPLACE"):
        words.sign("(")  # the names of columns
    elif words.next.keyword != ("SET" if verb == "UPDATE" else "WHERE"):
        return False  # further tables, or an alias
    return not _calls(words)


def _calls(words: StatementWords) -> bool:
    """Tell whether the rest of a statement may call a stored function or read a view."""
    while words.next.sign is not alterations.END:
        token = words.read()
        if token.keyword in _READS:
            return True
        if token == (Sign.OTHER, "."):
            words.name()
            named = True
        else:
            named = token.sign is Sign.NAME or (bool(token.keyword) and token.keyword not in _BEFORE)
        if named and words.next == (Sign.OTHER, "("):
            return True
    return False


def _drop(words: StatementWords) -> Iterator[Effect]:
    if words.skip("TEMPORARY"):
        return
    kind = words.read().keyword
    if kind in ("TABLE", "TABLES", "SEQUENCE"):
        words.skip("IF", "EXISTS")
        for database, table in _tables(words):
            yield Effect(Reason.DROPPED, database, table)
        alterations.skip_wait(words)
        words.skip_any("RESTRICT", "CASCADE")
        words.end()
    elif kind in ("DATABASE", "SCHEMA"):
        words.skip("IF", "EXISTS")
        yield Effect(Reason.DROPPED, words.name())
        words.end()
    elif kind == "INDEX":
        words.skip("IF", "EXISTS")
        reason = Reason.ALTERED if words.name().upper() == "PRIMARY" else Reason.REBUILT
        words.expect("ON")
        yield Effect(reason, *alterations.table(words))
    elif kind not in _OTHERS:
        yield Effect(Reason.UNCLEAR)


def _optimize(words: StatementWords) -> Iterator[Effect]:
    """The effects of OPTIMIZE and REPAIR, by which the server may copy each of the tables."""
    words.skip_any("LOCAL", "NO_WRITE_TO_BINLOG")
    if words.skip("VIEW"):
        return
    words.skip_any("TABLE", "TABLES")
    for database, table in _tables(words):
        yield Effect(Reason.REBUILT, database, table)


def _rename(words: StatementWords) -> Iterator[Effect]:
    if words.skip("USER"):
        return
    if words.read().keyword not in ("TABLE", "TABLES"):
        raise Unreadable
    words.skip("IF", "EXISTS")
    while True:
        yield Effect(Reason.RENAMED, *alterations.table(words))
        alterations.skip_wait(words)
        words.expect("TO")
        yield Effect(Reason.RENAMED, *alterations.table(words))
        if not words.sign(","):
            break
    words.end()


def _truncate(words: StatementWords) -> Iterator[Effect]:
    words.skip("TABLE")
    yield Effect(None, *alterations.table(words))
    alterations.skip_wait(words)
    words.end()


def _create(words: StatementWords) -> Iterator[Effect]:
    replaces = words.skip("OR", "REPLACE")
    temporary = words.skip("TEMPORARY")
    kind = words.read().keyword
    if kind and kind not in _OTHERS and words.skip("TABLE"):
        kind = "TABLE"  # of a new kind, as CREATE EXTERNAL TABLE
    if kind in ("TABLE", "SEQUENCE"):
        exists = words.skip("IF", "NOT", "EXISTS")
        name = alterations.table(words)
        if not temporary and not exists:
            yield Effect(Reason.CREATED, *name)
        if words.dialect.mariadb and _is_filled(words):
            yield Effect(Reason.BY_STATEMENT)  # in MySQL no function can change rows meanwhile
    elif kind in ("DATABASE", "SCHEMA"):
        if replaces:
            yield Effect(Reason.DROPPED, words.name())
    elif kind in _INDEXES:
        yield _index_table(words)
    elif kind not in _OTHERS:
        yield from (Effect(Reason.UNCLEAR),) if replaces or not kind else _mentions(words)


def _mentions(words: StatementWords) -> Iterator[Effect]:
    """The effects of a CREATE of an unknown kind: on the tables that it names.

    A new object can change no table that the statement does not name.
    """
    while words.next.sign is not alterations.END:
        token = words.read()
        if token.sign in (Sign.WORD, Sign.NAME) and token.value:
            within = words.sign(".")
            yield Effect(Reason.UNCLEAR, *((token.value, words.name()) if within else (None, token.value)))


def _index_table(words: StatementWords) -> Effect:
    """The effect on the table of a new index: its name follows the first ON."""
    while words.next.keyword != "ON":
        if words.read().sign is alterations.END:
            raise Unreadable
    words.read()
    return Effect(Reason.REBUILT, *alterations.table(words))


def _is_filled(words: StatementWords) -> bool:
    """Tell whether a new table gets the rows of a query, whose functions may change other tables."""
    while words.next.sign is not alterations.END:
        keyword = words.read().keyword
        if keyword in ("SELECT", "TABLE"):
            return True
        if keyword == "VALUES" and words.next.keyword not in ("LESS", "IN"):  # those of a partition
            return True
    return False


def _alter(words: StatementWords) -> Iterator[Effect]:
    words.skip("ONLINE")
    ignores = words.skip("IGNORE")
    kind = words.read().keyword
    if kind == "TABLE":
        yield from alterations.effects(words, ignores=ignores)
    elif kind == "SEQUENCE":
        words.skip("IF", "EXISTS")
        yield Effect(Reason.ALTERED, *alterations.table(words))
    elif kind not in _OTHERS:
        yield Effect(Reason.UNCLEAR)


def _tables(words: StatementWords) -> Iterator[tuple[str | None, str]]:
    yield alterations.table(words)
    while words.sign(","):
        yield alterations.table(words)


_INDEXES = frozenset("FULLTEXT INDEX SPATIAL UNIQUE VECTOR".split())
# Other objects that are created, altered and dropped, and words that may precede them.
_OTHERS = frozenset(
    """AGGREGATE ALGORITHM DATABASE DEFINER EVENT FUNCTION INSTANCE JSON LIBRARY LOGFILE PACKAGE PREPARE
    PROCEDURE RESOURCE ROLE SCHEMA SERVER SQL TABLESPACE TRIGGER UNDO USER VIEW""".split()
)
_READERS: Mapping[str, Callable[[StatementWords], Iterator[Effect]]] = {
    "DROP": _drop,
    "RENAME": _rename,
    "TRUNCATE": _truncate,
    "CREATE": _create,
    "ALTER": _alter,
    "OPTIMIZE": _optimize,
    "REPAIR": _optimize,
}
