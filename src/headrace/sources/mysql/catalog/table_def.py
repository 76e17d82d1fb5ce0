"""The definition of a table: what it is, in a form that can be compared.

A binlog tells of DDL as statements, and of a table's shape with every event (TABLE_MAP with full metadata). A
look at the catalog holds all that the two can be held against: columns with all that their values depend on,
the keys that rows can be told apart by, the engine, and foreign keys whose cascades are in no log. It holds
nothing that changes by itself (sizes, AUTO_INCREMENT) and nothing that means nothing to a row (secondary
indexes, comments, partitions, row formats): two looks at a table that means the same are equal. The charset
that texts get by default means nothing to a row, and decides what a later statement does.

identity    The primary key, else the one UNIQUE key of columns that cannot be NULL, whole and stored. It is
            the key that the log names with every event, so that its end is seen; of several nobody tells
            which one that is. Of a primary key over a prefix the whole value is unique all the more. What
            the server tells apart and the lake would not is no identity: labels that print alike, charsets
            in which two codes are one character.
no identity The table is a multiset. That costs more and is as exact, since row images are full.
later       A unique key that is new changes no identity that was decided: that one has to be among the keys.

One column as information_schema.columns describes it: what `types` makes a column of the lake of.

Read by `definitions`, kept whole in a table's record, so that a later look can be held against it.

The number of a table: how the records of a stream, and those of the lake, name it in one integer.

A binlog numbers tables anew whenever the server opens them, so a number is made of the name. Two names with
one number are thinkable; preflight refuses the second.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.names import TableName
from headrace.core.records import from_record, on_disk, to_record
from headrace.core.schema import TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.sources.contract.values import TableDef
from headrace.sources.mysql.types.columns import column_of

_BYTES = 6


def table_number(name: TableName) -> int:
    """The first 48 bits of a digest of the database's and the table's name."""
    text = f"{name.schema}\0{name.name}".encode("utf-8", "surrogateescape")
    return int.from_bytes(hashlib.sha256(text).digest()[:_BYTES], "big")


@dataclass(frozen=True, slots=True)
class ColumnRow:
    """One column. Nothing here changes unless what its values are, or how they are stored, may change."""

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


# In these, two codes are one character of Unicode: asked of both servers, code by code.
CODES_ALIKE = frozenset(("armscii8", "big5", "cp932", "eucjpms", "sjis", "tis620", "ujis"))
STATEMENTS = frozenset(("passed", "versions"))  # of a table's details, beside its look
LABEL = re.compile(r"'(?:[^']|'')*'")  # as the server quotes one


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table at one moment."""

    name: TableName
    kind: str  # information_schema.tables.table_type
    engine: str
    columns: tuple[ColumnRow, ...]  # by ordinal
    keys: tuple[tuple[str, ...], ...]  # unique, of columns that cannot be NULL; the primary key first
    primary: bool = False  # the first of them is the primary key, if it has one
    cascades: tuple[str, ...] = ()  # foreign keys that change or remove rows of this table, unlogged
    # The column that is AUTO_INCREMENT; older records do not say.
    counting: str = field(default="", metadata=on_disk(optional=True))
    # We may SELECT every column: of the moment, and no part of what the table is.
    readable: bool = field(default=True, metadata=on_disk(outside=True))
    # Of texts whose definition names none; older records do not say.
    charset: str = field(default="", metadata=on_disk(optional=True))

    @property
    def key(self) -> tuple[str, ...]:
        """The columns that tell rows apart, () where none do."""
        apart = {column.name for column in self.columns if keeps_apart(column)}
        known = self.keys[:1] if self.primary or len(self.keys) == 1 else ()
        return next((key for key in known if apart.issuperset(key)), ())


def keeps_apart(column: ColumnRow) -> bool:
    """Tell whether values that differ at the source differ in the lake, too."""
    if column.data_type in ("enum", "set") and "''" in LABEL.findall(column.column_type):
        return False  # beside the label '' there is the value that stands for none, which prints alike
    return column.charset not in CODES_ALIKE


def schema_of(look: TableLook) -> TableSchema:
    """The table's columns and identity, as the lake will know them; one that it cannot hold is refused."""
    columns = tuple(column_of(row.name, row.column_type, row.charset) for row in look.columns)
    return TableSchema(columns=columns, key=look.key, full=True, transaction=TransactionId.GTID)


def recorded_look(details: Mapping[str, Any]) -> TableLook:
    """Read the look out of a table's details, where statements may stand beside it (`known_statements`)."""
    return from_record(TableLook, {key: details[key] for key in details if key not in STATEMENTS})


def definition(look: TableLook) -> TableDef:
    """The look as those above record it, with the columns that the lake will have."""
    return TableDef(look.name, table_number(look.name), schema_of(look), to_record(look))
