"""The definition of a table, in a form that can be compared.

A binlog has DDL as statements, and a table's layout with every event (TABLE_MAP with full metadata). A look
at the catalog holds everything that the two are compared with: columns with all facts that their values
depend on, the keys that identify rows, the engine, and foreign keys whose cascades are not logged. It holds
nothing that changes by itself (sizes, AUTO_INCREMENT) and nothing that does not matter to rows (secondary
indexes, comments, partitions, row formats). So two looks at an unchanged table are equal. The default charset
of texts does not matter to rows either, but it decides what a later statement does.

identity    The primary key; else the only UNIQUE key over whole, stored columns that cannot be NULL. The log
            names this key with every event, so its end is noticed. If there are several such keys, nothing
            tells which one the log names. For a primary key over a prefix, the whole values are unique too. A
            key is no identity if the server distinguishes values that the lake would not: labels that print
            alike, charsets in which two codes are one character.
no identity The table is a multiset. That costs more and is as exact, since row images are full.
later       A new unique key never changes the identity; the old one must still be among the keys.

`ColumnRow` is one column as information_schema.columns describes it; `types` makes a column of the lake from
it. `definitions` reads it, and a table's record keeps it whole, so that a later look can be compared.

`table_number` is the integer by which the records of a stream and of the lake name a table. A binlog numbers
tables anew whenever the server opens them, so our number is made from the name. Two names may have the same
number; preflight then refuses the second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.names import TableName
from headrace.core.records import from_record, on_disk, to_record
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.values import TableDef
from headrace.sources.mysql.types.columns import column_of

_BYTES = 6


def table_number(name: TableName) -> int:
    """The first 48 bits of a digest of the database's and the table's name."""
    text = f"{name.schema}\0{name.name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:_BYTES], "big")


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One column. A field changes only if the column's values, or the way they are stored, may change."""

    name: str
    ordinal: int  # from 1; invisible columns count
    column_type: str  # as the server prints it: "int unsigned", "enum('a','b')", "varchar(10)"
    data_type: str  # its first word
    charset: str | None
    collation: str | None
    nullable: bool
    generation: str = field(metadata=on_disk("generated"))  # '' no, 's' stored, 'v' virtual
    expression: str  # of a generated column
    invisible: bool
    precision: int | None  # of numbers
    scale: int | None
    fraction: int | None  # digits of a second
    srs_id: int | None  # of a spatial column that is bound to one; MariaDB does not say
    # A rule lets its values leave as hashes alone.
    is_hashed: bool = field(default=False, metadata=on_disk("hashed", sparse=True))


# The charsets in which two codes are one character of Unicode: tested on both servers, code by code.
CODES_ALIKE = frozenset(("armscii8", "big5", "cp932", "eucjpms", "sjis", "tis620", "ujis"))
STATEMENTS = frozenset(("passed", "versions"))  # keys of a table's details that are not of its look
LABEL = re.compile(r"'(?:[^']|'')*'")  # as the server quotes one


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table at one moment."""

    name: TableName
    kind: str  # information_schema.tables.table_type
    engine: str
    columns: tuple[ColumnRow, ...]  # by ordinal
    keys: tuple[tuple[str, ...], ...]  # unique, of columns that cannot be NULL; the primary key first
    primary: bool = False  # the first key is the primary key
    cascades: tuple[str, ...] = ()  # foreign keys that change or remove rows of this table, unlogged
    # The column that is AUTO_INCREMENT; older records do not say.
    counting: str = field(default="", metadata=on_disk(optional=True))
    # We may SELECT every column now; this is no part of the definition.
    readable: bool = field(default=True, metadata=on_disk(outside=True))
    # The charset of texts whose definition names none; older records do not say.
    charset: str = field(default="", metadata=on_disk(optional=True))
    # The columns that a rule ever left out: `columns` lacks them, and layouts in the log have them.
    left_out: tuple[str, ...] = field(default=(), metadata=on_disk(sparse=True))

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that identify rows; () if none do."""
        apart = {column.name for column in self.columns if keeps_apart(column)}
        known = self.keys[:1] if self.primary or len(self.keys) == 1 else ()
        return next((key for key in known if apart.issuperset(key)), ())


def apply_rules(look: TableLook, rules: ColumnRules) -> TableLook:
    """The look without the columns that must not leave, and with those that leave as hashes."""
    if look.name not in rules.tables:
        return look
    out = rules.forbidden(look.name, [column.name for column in look.columns])
    columns = tuple(
        replace(column, is_hashed=True) if rules.hashes(look.name, column.name) else column
        for column in look.columns
        if column.name not in out
    )
    return replace(look, columns=columns, left_out=tuple(out))


def keeps_apart(column: ColumnRow) -> bool:
    """Tell whether values that differ at the source also differ in the lake."""
    if column.data_type in ("enum", "set") and "''" in LABEL.findall(column.column_type):
        return False  # an invalid value prints like the label ''
    return column.charset not in CODES_ALIKE


def schema_of(look: TableLook) -> TableSchema:
    """The lake's schema of the table; raises if the lake cannot hold a column."""
    columns = tuple(column_of(row.name, row.column_type, row.charset, row.is_hashed) for row in look.columns)
    return TableSchema(columns=columns, key=look.key, full=True, transaction=TransactionId.GTID)


def recorded_look(details: Mapping[str, Any]) -> TableLook:
    """Read the look from a table's details, which may also hold statements (`known_statements`)."""
    return from_record(TableLook, {key: details[key] for key in details if key not in STATEMENTS})


def definition(look: TableLook) -> TableDef:
    """The look as a `TableDef`: the record, and the lake's schema."""
    return TableDef(look.name, table_number(look.name), schema_of(look), to_record(look))
