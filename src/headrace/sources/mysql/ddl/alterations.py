"""The clauses of ALTER TABLE: those that change no row, no column and no default of a table, and all others.

    ALTER TABLE t  ADD KEY (x), COMMENT = 'y' ENGINE = InnoDB, ALGORITHM = INPLACE
                   └── clause ─┘ └────── clause of options ──┘ └──── clause ────┘

A clause that is not listed here as harmless alters the table, since new releases have new clauses. For a
harmless clause the server may still copy the table, depending on the clause, the release or a setting of the
session: then the table counts as rebuilt. The effect of that depends on its columns, which are not known
here. A clause that redefines a column counts as a change even if it may only set a comment: its text does not
say what the column was before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headrace.sources.mysql.ddl.steps import Reason
from headrace.sources.mysql.ddl.tokens import Sign, StatementWords, Unreadable

END = Sign.END


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of a statement on a table, on all tables of a database, or on all tables."""

    reason: Reason | None  # None: it was emptied
    database: str | None = None
    table: str | None = None
    steps: bytes = b""  # the steps of an ALTER TABLE in a closed form (`closed_form`)

    def within(self, database: str) -> Effect:
        """Complete a table that was named without its database with this one."""
        if self.database is not None or self.table is None:
            return self
        if not database:
            raise Unreadable
        return replace(self, database=database)

    def check_names(self) -> None:
        """Refuse names with bytes that mean nothing in their charset: nobody knows what the server read."""
        for name in (self.database, self.table):
            (name or "").encode()


_KEYS = frozenset("INDEX KEY UNIQUE FULLTEXT SPATIAL FOREIGN CONSTRAINT CHECK".split())  # all reserved words
_OPTIONS = frozenset(
    """ALGORITHM AUTOEXTEND_SIZE AUTO_INCREMENT AVG_ROW_LENGTH CHARSET CHECKSUM COLLATE COMMENT COMPRESSION
    CONNECTION DELAY_KEY_WRITE ENCRYPTED ENCRYPTION ENCRYPTION_KEY_ID ENGINE_ATTRIBUTE INSERT_METHOD
    KEY_BLOCK_SIZE LOCK MAX_ROWS MIN_ROWS PACK_KEYS PAGE_CHECKSUM PAGE_COMPRESSED PAGE_COMPRESSION_LEVEL
    PASSWORD ROW_FORMAT SECONDARY_ENGINE_ATTRIBUTE STATS_AUTO_RECALC STATS_PERSISTENT STATS_SAMPLE_PAGES
    TABLE_CHECKSUM TRANSACTIONAL""".split()
)
_UPKEEP = frozenset("ANALYZE CHECK OPTIMIZE REBUILD REPAIR REORGANIZE COALESCE".split())
_PARTITION_LISTS = _UPKEEP | frozenset(("DISCARD", "DROP", "IMPORT", "TRUNCATE"))


def table(words: StatementWords) -> tuple[str | None, str]:
    """Read the name of a table, with its database or without."""
    first = words.name()
    return (first, words.name()) if words.sign(".") else (None, first)


def skip_wait(words: StatementWords) -> None:
    """Read MariaDB's WAIT or NOWAIT, if one comes next."""
    if words.skip("WAIT"):
        words.read()
    else:
        words.skip("NOWAIT")


def effects(words: StatementWords, *, ignores: bool) -> Iterator[Effect]:
    """Find the effects of an ALTER TABLE, whose first words are read. With `ignores` it may drop rows."""
    words.skip("IF", "EXISTS")
    name = table(words)
    skip_wait(words)
    if ignores:
        yield Effect(Reason.ALTERED, *name)
        return
    found: list[Effect] = []
    while words.next.sign is not END:
        found += _clause(words, name)
        if not words.sign(","):
            break
    words.end()
    yield from found or [Effect(Reason.REBUILT, *name)]


def _clause(words: StatementWords, name: tuple[str | None, str]) -> Iterator[Effect]:
    first = words.next.keyword
    if first == "RENAME":
        yield from _rename(words, name)
        return
    if first in ("EXCHANGE", "CONVERT"):
        yield from _exchange(words, name)
        return
    if (found := reason(words)) is not None:
        yield Effect(found, *name)
    pass_over(words, is_last=ends_statement(first, words))


def ends_statement(first: str, words: StatementWords) -> bool:
    """Tell whether a clause has a list with commas: no server allows another clause after such a one.

    `first` is the clause's first word, which was read; this may read the next one too.
    """
    if first == "ORDER":
        return words.skip("BY")
    return first in _PARTITION_LISTS and words.skip("PARTITION")


def reason(words: StatementWords) -> Reason | None:
    """Find the effect of a clause on its table; it reads at least as much as it needs for that."""
    first = words.next.keyword
    if is_option(words):
        return options(words)[0]
    words.read()
    second = words.next.keyword
    match first:
        case "ADD":
            return of_addition(words)
        case "DROP":
            return of_removal(words)
        case "ALTER":
            return _of_default(words)
        case "TRUNCATE" | "IMPORT" | "DISCARD":
            return Reason.PARTITIONS if second == "PARTITION" else Reason.TABLESPACE
        case "ENABLE" | "DISABLE":
            return None if second in ("KEYS", "KEY") else Reason.ALTERED
        case "REMOVE":
            return None if second == "PARTITIONING" else Reason.ALTERED
        case "WITH" | "WITHOUT":
            return None if second == "VALIDATION" else Reason.ALTERED
        case "FORCE" | "ORDER":
            return None
        case "PARTITION":
            return None if second == "BY" else Reason.ALTERED
    return None if first in _UPKEEP and second == "PARTITION" else Reason.ALTERED


def of_addition(words: StatementWords) -> Reason | None:
    """The effect of ADD. Keys change no row, except a primary key, which identifies rows, and cascades."""
    kind = words.next.keyword
    if not kind:
        return Reason.ALTERED  # columns in parentheses, or a column with a quoted name
    words.read()
    if kind == "VECTOR":  # it may also be the name of a column
        return None if words.next.keyword in ("INDEX", "KEY") else Reason.ALTERED
    if kind == "PARTITION":
        return None
    if kind == "CONSTRAINT":
        words.skip("IF", "NOT", "EXISTS")
        if words.next.keyword not in ("PRIMARY", "UNIQUE", "FOREIGN", "CHECK"):
            words.name()
        kind = words.next.keyword
    if kind == "FOREIGN" and _cascades(words):
        return Reason.ALTERED
    return None if kind in _KEYS else Reason.ALTERED


def _cascades(words: StatementWords) -> bool:
    """Tell whether a foreign key may change rows of its own table: some servers don't log those changes."""
    while words.next.sign is not END and words.next != (Sign.OTHER, ","):
        if words.sign("("):
            close(words)
        elif words.read().keyword == "ON":
            words.read()
            if words.read().keyword in ("CASCADE", "SET"):
                return True
    return False


def close(words: StatementWords) -> None:
    """Read up to the closing parenthesis; the opening one was read."""
    depth = 1
    while depth:
        token = words.read()
        if token.sign is END:
            raise Unreadable
        if token.sign is Sign.OTHER:
            depth += {"(": 1, ")": -1}.get(token.value, 0)


def of_removal(words: StatementWords) -> Reason | None:
    if words.next.keyword == "PARTITION":
        return Reason.PARTITIONS
    kind = words.read().keyword
    if kind == "FOREIGN":
        return None
    if kind not in ("INDEX", "KEY", "CONSTRAINT", "CHECK"):
        return Reason.ALTERED
    words.skip("IF", "EXISTS")
    return Reason.ALTERED if words.name().upper() == "PRIMARY" else None


def _of_default(words: StatementWords) -> Reason | None:
    """The effect of ALTER within ALTER TABLE: on an index, a constraint, a column's default or visibility."""
    if words.next.keyword in ("INDEX", "KEY", "CONSTRAINT", "CHECK"):
        return None
    words.skip("COLUMN")
    words.skip("IF", "EXISTS")
    words.name()
    first, second = words.read().keyword, words.next.keyword
    fits = first in ("SET", "DROP") and second in ("DEFAULT", "VISIBLE", "INVISIBLE")
    return None if fits else Reason.ALTERED


def is_option(words: StatementWords) -> bool:
    """Tell whether the next clause consists of options of the table."""
    return words.next.keyword in _OPTIONS or words.next.keyword in ("ENGINE", "TYPE", "DEFAULT", "CHARACTER")


def options(words: StatementWords) -> tuple[Reason | None, str]:
    """Read options of the table, one after the other; PARTITION BY may follow them.

    Returns their effect, and the name of the new default charset of texts, or of a collation of it.
    """
    charset = ""
    while words.next.sign is not END:
        words.skip("DEFAULT")
        if words.next.keyword == "PARTITION":
            words.read()
            return _of_options(charset) if words.next.keyword == "BY" else Reason.ALTERED, charset
        option = words.read().keyword
        if option == "CHARACTER":
            words.expect("SET")
        elif option not in _OPTIONS and option not in ("ENGINE", "TYPE"):
            return Reason.ALTERED, charset
        words.sign("=")
        value = words.read()
        if option in ("ENGINE", "TYPE") and value.value.upper() != "INNODB":
            return Reason.ALTERED, charset  # some engines keep no rows
        if option in ("CHARACTER", "CHARSET", "COLLATE"):
            charset = value.value
        if words.next in ((Sign.OTHER, ","), (Sign.OTHER, ";")):
            break
    return _of_options(charset), charset


def _of_options(charset: str) -> Reason | None:
    return Reason.DEFAULTS if charset else None


def _rename(words: StatementWords, name: tuple[str | None, str]) -> Iterator[Effect]:
    words.read()
    if words.next.keyword in ("INDEX", "KEY"):
        pass_over(words)
    elif words.next.keyword == "COLUMN":
        yield Effect(Reason.ALTERED, *name)
        pass_over(words)
    else:
        words.sign("=")
        words.skip_any("TO", "AS")
        yield Effect(Reason.RENAMED, *name)
        yield Effect(Reason.RENAMED, *table(words))


def _exchange(words: StatementWords, name: tuple[str | None, str]) -> Iterator[Effect]:
    """Partitions that are exchanged with a table, or become one; CONVERT may also change the charset."""
    reason = Reason.PARTITIONS
    if words.read().keyword == "CONVERT" and words.next.keyword not in ("PARTITION", "TABLE"):
        reason = Reason.ALTERED
    yield Effect(reason, *name)
    while reason is Reason.PARTITIONS and words.next.keyword != "TABLE":
        if words.read().sign is END:
            raise Unreadable
    if reason is Reason.PARTITIONS:
        words.read()
        yield Effect(reason, *table(words))
    pass_over(words)


def pass_over(words: StatementWords, *, is_last: bool = False) -> None:
    """Read the rest of a clause, up to the comma behind it; the last clause may itself have commas."""
    depth = 0
    while words.next.sign is not END:
        token = words.next
        if token.sign is Sign.OTHER:
            if depth == 0 and (token.value == ";" or (token.value == "," and not is_last)):
                return
            depth += {"(": 1, ")": -1}.get(token.value, 0)
        words.read()
    if depth:
        raise Unreadable
