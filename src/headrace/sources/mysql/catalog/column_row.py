"""One column as information_schema.columns describes it: what `types` makes a column of the lake of.

Read by `definitions`, kept whole in a table's record, so that a later look can be held against it.
"""

from __future__ import annotations

from dataclasses import dataclass


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
    generated: str  # '' no, 's' stored, 'v' virtual
    expression: str  # of a generated column
    invisible: bool
    precision: int | None  # of numbers
    scale: int | None
    fraction: int | None  # digits of a second
    srs_id: int | None  # of a spatial column that is bound to one; MariaDB does not say
