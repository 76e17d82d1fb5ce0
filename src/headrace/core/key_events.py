"""Key events: the changes of a batch, split into events at single keys.

A fold looks at one key at a time. A change that moves a row from one key to another therefore becomes
two events, and every other change one:

    change                                  events
    INSERT                                  INSERT at key(new)
    UPDATE, key kept or no old row sent     PUT    at key(new)
    UPDATE, key changed                     DELETE at key(old), then INSERT at key(new); one ordinal
    DELETE                                  DELETE at key(old)

Events are in the order of the log and have these columns:

    _key        large_binary   keycode of the key columns
    _time, _ordinal, _transaction, _commit_ts      as in the change batch
    _event      uint8          Event
    c0 … ck                    the new row; for a DELETE the old one, or no more than its key columns
    u<i>        bool           only where needed: the value of column i was not sent and is still the one
                               of the row before; c<i> is NULL there and means nothing
    _from       large_binary   for an INSERT by a change of key that has such holes: the old key, under
                               which the values are to be found; NULL elsewhere

Holes are filled here from whole old rows, so that a table with REPLICA IDENTITY FULL has none. Key
columns are never holes: where the server leaves out a long key value it sends the old key. Tables of
events with different `u` columns are joined by `pa.concat_tables(tables, promote_options="default")`.

A key here is one that the source checks at once, row by row: the two rows of a swap go through a third
value. (A deferrable key, which PostgreSQL allows for no identity, could make an INSERT meet a row that
leaves only later: `fold` reports that as a conflict.)
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import Image, Op, Sides, holes, operations
from headrace.core.columns import Flags, column
from headrace.core.errors import Definite
from headrace.core.keycode import keycode
from headrace.core.schema import TableSchema

META_COLUMNS = ("_time", "_ordinal", "_transaction", "_commit_ts")
_CODE = pa.large_binary()


class KeyEvent(IntEnum):
    """A kind of event at a key."""

    INSERT = 1
    PUT = 2
    DELETE = 3


@dataclass(frozen=True, slots=True)
class _Keys:
    """The keycodes of the new and the old rows of a batch, and whose keys changed."""

    new: pa.Array
    old: pa.Array
    is_moved: Flags


def events(schema: TableSchema, changes: pa.Table) -> pa.Table:
    """The key events of the changes of a table that has a key."""
    op, image = operations(changes)
    updated, deleted = op == Op.UPDATE, op == Op.DELETE
    if (deleted & (image == Image.NONE)).any():
        raise _no_key("a delete came without the old key")
    keys = _keys(schema, changes, image != Image.NONE, updated)
    sides = Sides.of(keys.is_moved | deleted, ~deleted)
    named = {"_key": sides.pick(keys.new, keys.old)}
    named |= {name: sides.repeat(column(changes, name)) for name in META_COLUMNS}
    named["_event"] = pa.array(_kinds(sides, updated & ~keys.is_moved), pa.uint8())
    values, missing = _values(schema, changes, image, sides)
    named |= {f"c{index}": array for index, array in enumerate(values)}
    named |= {f"u{index}": pa.array(hole) for index, hole in missing.items()}
    named["_from"] = _origin(keys, sides, missing)
    return pa.table(named)


def _keys(schema: TableSchema, changes: pa.Table, with_old: Flags, updated: Flags) -> _Keys:
    positions = [schema.names.index(name) for name in schema.key]
    sent = [holes(changes, index, with_old) for index in positions]
    if any(missing.any() for _, missing in sent):
        raise _no_key("a long key value was not sent, and no old key beside it")
    new = keycode([values for values, _ in sent])
    if not with_old.any():
        return _Keys(new, new, np.zeros(len(new), np.bool_))
    old = keycode([column(changes, f"o{index}") for index in positions])
    differ = pc.not_equal(new, old).to_numpy(zero_copy_only=False).astype(np.bool_)
    return _Keys(new, old, updated & with_old & differ)


def _kinds(sides: Sides, kept: Flags) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    new = np.where(kept[sides.change], KeyEvent.PUT, KeyEvent.INSERT)
    return np.where(sides.old, KeyEvent.DELETE, new).astype(np.uint8)


def _values(
    schema: TableSchema, changes: pa.Table, image: np.ndarray[tuple[int], np.dtype[np.int64]], sides: Sides
) -> tuple[list[pa.Array], dict[int, Flags]]:
    """The events' rows by column, and where columns are holes still."""
    values: list[pa.Array] = []
    missing: dict[int, Flags] = {}
    for index, name in enumerate(schema.names):
        # An old key, too, is good for the key's own columns.
        fillable = image != Image.NONE if name in schema.key else image == Image.FULL
        new, hole = holes(changes, index, fillable)
        values.append(sides.pick(new, column(changes, f"o{index}")))
        if hole.any():
            missing[index] = hole[sides.change] & ~sides.old
    return values, missing


def _origin(keys: _Keys, sides: Sides, missing: dict[int, Flags]) -> pa.Array:
    """The old key of the INSERTs by a change of key that have holes."""
    wanted = np.zeros(len(sides.change), np.bool_)
    for hole in missing.values():
        wanted |= hole
    wanted &= keys.is_moved[sides.change]
    if not wanted.any():
        return pa.nulls(len(wanted), _CODE)
    return keys.old.take(pa.array(sides.change, mask=~wanted))


def _no_key(primary: str) -> Definite:
    return Definite(
        "CHANGE_WITHOUT_KEY",
        primary,
        detail="the table's identity was changed after its mirroring began",
        hint="give the table its identity again, then headrace tables resync",
    )
