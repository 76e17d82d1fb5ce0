"""The sides of a change: its old row, its new row, and which of them count.

Every view of a change batch (key events, history, the net of a multiset) is a list of sides: for each
change its old row, its new row or both, the old one first. `Sides` is that list as two arrays; taking
a column of it picks from `n<i>` and `o<i>` at once, without a loop.

    change      0: INSERT   1: UPDATE   2: DELETE
    sides       (0, new)    (1, old)(1, new)    (2, old)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import Image, Op
from headrace.core.columns import Flags, Ints, column, flags_or_none_set, ints
from headrace.core.errors import Definite
from headrace.core.schema import TableSchema


@dataclass(frozen=True, slots=True)
class Sides:
    """A list of sides: `change[k]` is the change's row in the batch, `old[k]` which side of it."""

    change: Ints
    old: Flags

    @classmethod
    def of(cls, with_old: Flags, with_new: Flags) -> Sides:
        """The sides of each change that are asked for, old before new."""
        counts = with_old.astype(np.int64) + with_new
        change = np.repeat(np.arange(len(counts)), counts)
        first = np.ones(len(change), np.bool_)
        first[1:] = change[1:] != change[:-1]
        return cls(change, first & with_old[change])

    def pick(self, new: pa.Array, old: pa.Array) -> pa.Array:
        """The values of the sides, from the changes' new and old values."""
        if not self.old.any():
            return self.repeat(new)
        both = pa.concat_arrays([new, old])
        return both.take(pa.array(np.where(self.old, self.change + len(new), self.change)))

    def repeat(self, values: pa.Array) -> pa.Array:
        """The columns that both sides of a change share, such as its time."""
        if len(self.change) == len(values) and self._plain():
            return values
        return values.take(pa.array(self.change))

    def _plain(self) -> bool:
        return bool((self.change == np.arange(len(self.change))).all())


def operations(changes: pa.Table) -> tuple[Ints, Ints]:
    """The operation and the kind of old image of each change."""
    return ints(changes, "_op"), ints(changes, "_image")


def holes(changes: pa.Table, index: int, fillable: Flags) -> tuple[pa.Array, Flags]:
    """The new values of a column, with those that were not sent taken from the old row where it is
    `fillable`, and which of them are still missing."""
    new = column(changes, f"n{index}")
    unchanged = flags_or_none_set(changes, f"u{index}")
    if not unchanged.any():
        return new, unchanged
    filled = pc.if_else(pa.array(unchanged & fillable), column(changes, f"o{index}"), new)
    return filled, unchanged & ~fillable


def whole_images(schema: TableSchema, changes: pa.Table) -> tuple[Sides, list[pa.Array]]:
    """All sides of changes that carry whole old rows, and their values by column."""
    op, image = operations(changes)
    inserted = op == Op.INSERT
    full = image == Image.FULL
    _demand_whole(int((~full & ~inserted).sum()))
    sides = Sides.of(~inserted, op != Op.DELETE)
    values: list[pa.Array] = []
    for index in range(len(schema.columns)):
        new, missing = holes(changes, index, full)
        _demand_whole(int(missing.sum()))
        values.append(sides.pick(new, column(changes, f"o{index}")))
    return sides, values


def _demand_whole(lacking: int) -> None:
    if lacking:
        raise Definite(
            "CHANGE_WITHOUT_OLD_ROW",
            f"{lacking} changes came without the whole old row",
            detail="the table's identity was changed after its mirroring began",
            hint="set REPLICA IDENTITY FULL on the table again, then headrace tables resync",
        )
