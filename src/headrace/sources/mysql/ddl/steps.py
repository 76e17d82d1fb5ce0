"""The steps of an ALTER TABLE whose statement is of a closed form: what it did to columns, in its order.

    ALTER TABLE t ADD n int NOT NULL DEFAULT 7 AFTER id, DROP COLUMN s, CHANGE a b bigint
                  Add("n", "7", after="id")  DropColumn("s")   Retype("a", "b")

The stream makes the steps when it reads the statement (`closed_form`). The frame at the statement's place
carries them, and `evidence` compares them with two looks at the catalog. Names are as they were typed. The
catalog tells what a column is. The statement's own definition (`ColumnDeclaration`) proves that the catalog
shows the work of this statement and not of a later one. Values only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from headrace.core import records
from headrace.core.records import from_record, on_disk, to_record


class Reason(IntEnum):
    """The reason of an effect on a table that no row of the log shows."""

    DROPPED = 1
    RENAMED = 2
    ALTERED = 3
    BY_STATEMENT = 4  # rows changed by a statement that was logged instead of them
    PARTITIONS = 5  # some were dropped, emptied or exchanged
    UNCLEAR = 6  # a statement that might concern any table
    CREATED = 7
    TABLESPACE = 8  # discarded, or imported
    ROLLED_BACK = 9  # a part of what was logged
    DEFAULTS = 10  # what later statements mean by it is another thing; no row is
    REBUILT = 11  # the server may have copied it; what hangs on no session is as it was


FIRST = ""  # in the place of a column's name: before all others


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """The definition that a statement gave to a column, as the catalog would show it; "": it is not known."""

    type: str = ""
    not_null: bool = False
    charset: str = ""  # of the statement; without one it is the table's


@dataclass(frozen=True, slots=True)
class Add:
    """A column that came."""

    name: str
    default: str | None = None  # its constant, as a number or the inside of a text; None: none, or NULL
    is_text: bool = False
    says_null: bool = False  # DEFAULT NULL: no other value stands in old rows
    after: str | None = None  # None: at the end
    lenient: bool = False  # IF NOT EXISTS
    declaration: ColumnDeclaration = field(
        default=ColumnDeclaration(), metadata=on_disk("declared", optional=True)
    )


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column that went."""

    name: str
    lenient: bool = False  # IF EXISTS


@dataclass(frozen=True, slots=True)
class Rename:
    """A column that has another name."""

    old: str
    new: str
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Retype:
    """A column that was defined anew, maybe under another name and at another place."""

    old: str
    new: str
    after: str | None = None  # None: where it was
    counts: bool = False  # AUTO_INCREMENT
    lenient: bool = False
    declaration: ColumnDeclaration = field(
        default=ColumnDeclaration(), metadata=on_disk("declared", optional=True)
    )


@dataclass(frozen=True, slots=True)
class Recode:
    """All texts got another charset or collation."""

    charset: str = ""


@dataclass(frozen=True, slots=True)
class Default:
    """Texts whose definition names no charset have this one from here on; others keep theirs."""

    charset: str = ""


Step = Add | DropColumn | Rename | Retype | Recode | Default
_KINDS: Mapping[str, type[Step]] = {
    "a": Add,
    "d": DropColumn,
    "r": Rename,
    "t": Retype,
    "c": Recode,
    "f": Default,
}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}


def _write(step: Step) -> list[Any]:
    return [_LETTERS[type(step)], to_record(step)]


def _read(record: Sequence[Any]) -> Step:
    letter, values = record
    return from_record(_KINDS[letter], values)


records.register(Step, _write, _read)


@dataclass(frozen=True, slots=True)
class AlterStatement:
    """One statement. `strict` says that its session refused values that it could not keep."""

    steps: tuple[Step, ...]
    strict: bool = False

    def pack(self) -> bytes:
        """The bytes of it that a frame carries."""
        return json.dumps(to_record(self)).encode("ascii")

    @classmethod
    def parse(cls, data: bytes) -> AlterStatement:
        """Read what `pack` makes."""
        return records.parse(cls, data)
