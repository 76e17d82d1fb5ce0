"""Multisets: tables without a key, where a row is told apart by all of its values.

There is no "the row before" here, only copies. An epoch's changes are first netted, how many copies of
each row came or went, and then applied to the file that holds the row:

    net             c0 … ck (the row), `_key` (its keycode), `_net` (copies to add; to remove if below zero)
    fold_multiset   the file's rows without the copies that went, and with those that came

Whole old rows are needed, and are there: a table without a key is mirrored with REPLICA IDENTITY FULL.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.change_batch import whole_images
from headrace.core.columns import Flags, Ints, column, ints, wide, wide_schema
from headrace.core.keycode import keycode
from headrace.core.row_groups import Groups, by_group, group
from headrace.core.schema import TableSchema

KEY = "_key"
NET = "_net"


@dataclass(frozen=True, slots=True)
class FoldedMultiset:
    """The rows that are there afterwards, and those of which fewer copies were there than had to go."""

    final: pa.Table
    short: pa.Array


def net(schema: TableSchema, changes: pa.Table) -> pa.Table:
    """Count the copies of each row that changes add or take away; rows that come out even are left out."""
    sides, values = whole_images(schema, changes)
    codes = keycode(values)
    groups = group(codes)
    sums = groups.sums(np.where(sides.old, -1, 1))
    uneven = np.flatnonzero(sums)
    chosen = pa.array(groups.first[uneven])
    rows = pa.table([array.take(chosen) for array in values], names=_names(schema))
    return rows.append_column(KEY, codes.take(chosen)).append_column(NET, pa.array(sums[uneven], pa.int64()))


def net_schema(schema: TableSchema) -> pa.Schema:
    """The schema of `net`: the row's columns by number, so that no user's name collides with ours."""
    fields = [pa.field(f"c{index}", c.type) for index, c in enumerate(schema.columns)]
    return pa.schema([*fields, pa.field(KEY, pa.large_binary()), pa.field(NET, pa.int64())])


def fold_multiset(schema: TableSchema, base: pa.Table, net: pa.Table) -> FoldedMultiset:
    """Apply nets (of any number of batches) to the present rows; the rows come with wide offsets."""
    base, net = wide(base), wide(net)
    base_codes = keycode([base.column(name) for name in schema.names])
    codes = pa.concat_arrays([base_codes, column(net, KEY)])
    groups = group(codes)
    present = np.arange(len(codes)) < base.num_rows
    wanted = groups.sums(np.concatenate([np.zeros(base.num_rows, np.int64), ints(net, NET)]))
    had = groups.sums(present.astype(np.int64))
    kept = base.select(schema.names).take(pa.array(np.flatnonzero(_keep_all_but(groups, present, wanted))))
    added = _copies_to_add(schema, net, groups.ids[base.num_rows :], wanted)
    final = pa.concat_tables([kept.cast(wide_schema(schema.arrow())), added])
    short = np.flatnonzero(had + wanted < 0)
    return FoldedMultiset(final, codes.take(pa.array(groups.first[short])))


def _keep_all_but(groups: Groups, present: Flags, wanted: Ints) -> Flags:
    """Keep of each group of present rows all but the first `-wanted`."""
    order = by_group(groups.ids)
    ids = groups.ids[order]
    starts = np.searchsorted(ids, np.arange(len(groups.first)))
    nth = np.empty(len(ids), np.int64)
    nth[order] = np.arange(len(ids)) - starts[ids]
    # Present rows come before nets, so that within a group they are numbered from 0.
    return present & (nth >= -np.minimum(wanted, 0)[groups.ids])


def _copies_to_add(schema: TableSchema, net: pa.Table, ids: Ints, wanted: Ints) -> pa.Table:
    """The rows of which copies come, once for each copy."""
    distinct, where = np.unique(ids, return_index=True)
    copies = pa.array(np.repeat(where, np.maximum(wanted[distinct], 0)))
    values = [column(net, name).take(copies) for name in _names(schema)]
    return pa.Table.from_arrays(values, schema=wide_schema(schema.arrow()))


def _names(schema: TableSchema) -> list[str]:
    return [f"c{index}" for index in range(len(schema.columns))]
