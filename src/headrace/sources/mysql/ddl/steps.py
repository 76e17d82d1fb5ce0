"""The steps of an ALTER TABLE in a closed form: its changes of columns, in the statement's order.

    ALTER TABLE t ADD n int NOT NULL DEFAULT 7 AFTER id, DROP COLUMN s, CHANGE a b bigint
                  Add("n", "7", after="id")  DropColumn("s")   Retype("a", "b")

The stream makes the steps when it reads the statement (`closed_form`). The frame at the statement's place
carries them, and `evidence` compares them with two looks at the catalog. Names are as they were typed. The
catalog has the columns' definitions. The statement's own definition (`ColumnDeclaration`) proves that the
catalog shows the work of this statement and not of a later one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

from headrace.core import records
from headrace.core.records import from_record, on_disk, to_record


class Reason(IntEnum):
    """The kind of an effect on a table that no row of the log shows."""

    DROPPED = 1
    RENAMED = 2
    ALTERED = 3
    BY_STATEMENT = 4  # a statement changed rows, and was logged instead of them
    PARTITIONS = 5  # some were dropped, emptied or exchanged
    UNCLEAR = 6  # a statement that may concern any table
    CREATED = 7
    TABLESPACE = 8  # discarded, or imported
    ROLLED_BACK = 9  # a part of the logged changes was rolled back
    DEFAULTS = 10  # a default changed: no row changes, but later statements mean something else
    REBUILT = 11  # the server may have copied it: only values that depend on a session may have changed


FIRST = ""  # instead of a column's name: before all columns


@dataclass(frozen=True, slots=True)
class ColumnDeclaration:
    """A statement's definition of a column, in the catalog's spelling; "" means unknown."""

    type: str = ""
    not_null: bool = False
    charset: str = ""  # in the statement; without one the column gets the table's


@dataclass(frozen=True, slots=True)
class Add:
    """A column was added."""

    name: str
    default: str | None = None  # a number, or the inside of a text; None: no default, or NULL
    is_text: bool = False
    says_null: bool = False  # DEFAULT NULL: older rows have no other value
    after: str | None = None  # None: at the end
    lenient: bool = False  # IF NOT EXISTS
    declaration: ColumnDeclaration = field(
        default=ColumnDeclaration(), metadata=on_disk("declared", optional=True)
    )


@dataclass(frozen=True, slots=True)
class DropColumn:
    """A column was dropped."""

    name: str
    lenient: bool = False  # IF EXISTS


@dataclass(frozen=True, slots=True)
class Rename:
    """A column was renamed."""

    old: str
    new: str
    lenient: bool = False


@dataclass(frozen=True, slots=True)
class Retype:
    """A column was redefined, perhaps with another name and at another place."""

    old: str
    new: str
    after: str | None = None  # None: it stays in its place
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
    """The default charset changed: later definitions without a charset get it; columns keep theirs."""

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


def _is_of(step: Step, names: Collection[str]) -> bool:
    """Tell whether a step is about columns with these names alone; names are in lower case."""
    if isinstance(step, Add | DropColumn):
        return step.name.lower() in names
    return isinstance(step, Rename | Retype) and {step.old.lower(), step.new.lower()} <= {*names}


def _touches(step: Step, names: Collection[str]) -> bool:
    """Tell whether a step alters values or names of some of these columns; names are in lower case."""
    if isinstance(step, Add | DropColumn):
        return step.name.lower() in names
    if isinstance(step, Rename | Retype):
        return not {step.old.lower(), step.new.lower()}.isdisjoint(names)
    return isinstance(step, Recode)


def _blank(step: Step, sends: Callable[[str], bool]) -> Step:
    if not isinstance(step, Add) or step.default is None or sends(step.name):
        return step
    return replace(step, default="0" * (len(json.dumps(step.default)) - 2))


@dataclass(frozen=True, slots=True)
class AlterStatement:
    """One statement. With `strict` its session refused values that it could not keep."""

    steps: tuple[Step, ...]
    strict: bool = False

    def without(self, columns: Collection[str]) -> AlterStatement:
        """The statement as it is to a table without these columns."""
        if not columns:
            return self
        names = {name.lower() for name in columns}
        return replace(self, steps=tuple(step for step in self.steps if not _is_of(step, names)))

    def touches(self, columns: Collection[str]) -> bool:
        """Tell whether the statement alters values or names of some of these columns."""
        names = {name.lower() for name in columns}
        return bool(names) and any(_touches(step, names) for step in self.steps)

    def blank(self, sends: Callable[[str], bool]) -> AlterStatement:
        """The statement with other constants of equal length for columns that must not leave."""
        return replace(self, steps=tuple(_blank(step, sends) for step in self.steps))

    def pack(self) -> bytes:
        """The statement as bytes, for a frame."""
        return json.dumps(to_record(self)).encode("ascii")

    @classmethod
    def parse(cls, data: bytes) -> AlterStatement:
        """Read the bytes that `pack` made."""
        return records.parse(cls, data)
