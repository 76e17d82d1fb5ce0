"""Compare the stream's description of a table with the catalog's at the time of the copy.

What counts is what a value's decoding hangs on: names and their order, types, signs, digits, charsets,
labels, and the primary key. A longer VARCHAR, a larger TEXT, another collation of the same charset change no
value. DDL that was taken back is seen here and nowhere else, and so is the end of a unique key that rows were
known by: no statement says that it was this one.

MariaDB keeps a hash of a unique key over a long column in a column of its own, which its catalog does not
show: `DB_ROW_HASH_1`. Such columns are stepped over.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import numpy as np

from headrace.core.schema import Column, TableSchema
from headrace.decode.kernel import Ints
from headrace.decode.mysql.table_map import LayoutColumn, TableMapLayout
from headrace.sources.mysql.types.columns import fits

_HASH = re.compile(r"DB_ROW_HASH_\d+")


def positions(layout: TableMapLayout, schema: TableSchema) -> Ints | None:
    """The position in the schema of each column of a layout, -1 if it is hidden; None: it does not fit."""
    return positions_in(layout, schema.names, schema.columns, schema.key)


def positions_in(
    layout: TableMapLayout, names: Sequence[str], columns: Sequence[Column | None], key: Collection[str]
) -> Ints | None:
    """Find the positions of columns of these names; the type of some does not matter."""
    if not layout.is_full:
        return None
    hidden = [column.name not in names and _is_hash(column) for column in layout.columns]
    shown = [column for column, is_hidden in zip(layout.columns, hidden, strict=True) if not is_hidden]
    if tuple(column.name for column in shown) != tuple(names):
        return None
    if not all(column is None or fits(column, each) for column, each in zip(columns, shown, strict=True)):
        return None
    known = {layout.columns[number].name for number in layout.key if number < len(layout.columns)}
    if key and known != set(key):
        return None
    found = np.full(len(layout.columns), -1, np.int64)
    found[~np.array(hidden, np.bool_)] = np.arange(len(shown))
    return found


def _is_hash(column: LayoutColumn) -> bool:
    return column.name is not None and bool(_HASH.fullmatch(column.name))
