"""From buckets that differ to the rows that do: a second, bounded look at both sides under the same snapshot.

    lake      the rows of these buckets, out of the same files
    source    the rows of the keys that the lake has in them, by the key's index
              pieces whose sums these rows do not account for are read again, for rows the lake does not have

So a value that changed costs the source some look-ups by key; a row that the lake lacks, one piece; a table
without a key has no index to be asked by, and is read once more, for as many of its pieces as hold rows of
these buckets. Only so many rows are looked into: of a table that differs throughout some examples are
enough.

A source whose snapshot lets nobody in later is compared once more under another one, and both sides bring
these rows while they are summed up (`wanting`, `found_by_sums`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from headrace.core.checksum import Sums
from headrace.core.collection import DIFF
from headrace.core.columns import Ints, ints
from headrace.core.errors import HeadraceError
from headrace.core.keycode import keycode
from headrace.core.row_groups import by_group, group
from headrace.core.schema import TableSchema
from headrace.pipeline.tasks.compare.proofs import TEXTS, Projection, RowSums, net, unite
from headrace.pipeline.tasks.table_task import from_ipc
from headrace.pipeline.verify.sides import ComparedTable, Keys, ProofContext
from headrace.pipeline.verify.verdicts import CHANGED, EXTRA, MISSING, Difference, Texts
from headrace.sources.contract.decoder import Decoder

MOST_ROWS = 16_384  # of a table, that are looked into
KEYS_AT_ONCE = 200
_TEXT = TEXTS.names  # what tells texts apart


@dataclass(frozen=True, slots=True)
class DrillDown:
    """The rows that differ in the buckets that were looked into."""

    buckets: int
    differences: tuple[Difference, ...] = ()


def drill_down(context: ProofContext, table: ComparedTable, *, values: bool) -> DrillDown:
    """Look into the buckets of the table that differ."""
    wanted = _choose_buckets(table)
    if not wanted:
        return DrillDown(0)
    projection = replace(table.projection, buckets_wanted=wanted)
    lake = context.lake(table, projection)
    if lake.overfull:
        return DrillDown(0)  # the source is not asked for as many
    source = _source(context, table, projection, lake)
    if source.overfull:
        return DrillDown(0)
    return DrillDown(
        len(wanted),
        tuple(differences(context.decoder, projection, net(projection, source, lake), values=values)),
    )


def wanting(table: ComparedTable) -> ComparedTable | None:
    """The table for another comparison, which brings the rows of its buckets that differ."""
    wanted = _choose_buckets(table)
    if not wanted:
        return None
    return ComparedTable(table.record, replace(table.projection, buckets_wanted=wanted), table.pieces)


def found_by_sums(decoder: Decoder, table: ComparedTable, *, values: bool) -> DrillDown:
    """The rows that differ by what both sides brought of them while they were summed up."""
    source, lake, projection = table.source, table.lake, table.projection
    assert lake is not None
    if source.overfull or lake.overfull:
        return DrillDown(0)
    rows = net(projection, source, lake)
    return DrillDown(
        len(projection.buckets_wanted), tuple(differences(decoder, projection, rows, values=values))
    )


def _choose_buckets(table: ComparedTable) -> tuple[int, ...]:
    """The first of the buckets that differ: no more than hold the rows to be looked into, one at least."""
    assert table.lake is not None
    uneven = table.difference().uneven()
    rows = np.maximum(table.source.sums.counts, table.lake.sums.counts)[uneven]
    within = int(np.searchsorted(np.cumsum(rows), MOST_ROWS, side="right"))
    return tuple(uneven[: max(1, within)].tolist())


# --- the source's rows ----------------------------------------------------------------------------


def _source(context: ProofContext, table: ComparedTable, projection: Projection, lake: RowSums) -> RowSums:
    with ThreadPoolExecutor(context.connections, "headrace-verify") as pool:
        found = _by_key(context, table, projection, lake, pool)
        again = [number for number in table.parts if _is_unexplained(table, projection, number, found)]
        read = pool.map(lambda number: context.piece(table, projection, number), again)
        kept = (part for number, parts in found.items() if number not in again for part in parts)
        # One by one: what is too much in all is let go as it comes.
        return unite(chain(kept, read), projection.buckets)


def _by_key(
    context: ProofContext,
    table: ComparedTable,
    projection: Projection,
    lake: RowSums,
    pool: ThreadPoolExecutor,
) -> dict[int, list[RowSums]]:
    """The source's rows under the keys that the lake has, by piece."""
    found: dict[int, list[RowSums]] = {}
    if projection.schema.is_multiset or lake.rows is None:
        return found
    keys = key_texts(context.decoder, projection.schema, from_ipc(lake.rows))
    some = [keys[at : at + KEYS_AT_ONCE] for at in range(0, len(keys), KEYS_AT_ONCE)]
    for parts in pool.map(lambda few: _rows_of(context, table, projection, few), some):
        for number, part in parts.items():
            found.setdefault(number, []).append(part)
    return found


def _rows_of(
    context: ProofContext, table: ComparedTable, projection: Projection, keys: Keys
) -> Mapping[int, RowSums]:
    try:
        return context.rows_of(table, projection, keys)
    except HeadraceError:
        # Maybe a key of the lake's is no value of the column's type; what is not found is read again.
        return {}


def key_texts(decoder: Decoder, schema: TableSchema, rows: pa.Table) -> Keys:
    """The keys of rows (columns by number) as the source reads them, each once."""
    numbers = [schema.names.index(name) for name in schema.key]
    columns = [decoder.print_values(rows.column(f"c{number}")).to_pylist() for number in numbers]
    keys = dict.fromkeys(zip(*columns, strict=True))
    # No text of the source's holds a NUL: such a key, or one that is NULL, is not there.
    return tuple(key for key in keys if all(text is not None and "\0" not in text for text in key))


def _is_unexplained(
    table: ComparedTable, projection: Projection, number: int, found: Mapping[int, Sequence[RowSums]]
) -> bool:
    """Tell whether the piece has rows of the wanted buckets that were not found by their keys."""
    known = unite(found.get(number, ()), projection.buckets).sums
    left: Sums = table.parts[number].sums - known
    return bool(np.isin(left.uneven(), projection.buckets_wanted).any())


# --- words for them -------------------------------------------------------------------------------


def differences(
    decoder: Decoder, projection: Projection, rows: pa.Table, *, values: bool
) -> Iterator[Difference]:
    """Say how the source exceeds the lake by these updates (columns by number)."""
    if not rows.num_rows:
        return
    schema = projection.schema
    columns = [rows.column(f"c{i}") for i in range(len(schema.columns))]
    shown = _ShownRows(decoder, schema, columns, values)
    diffs = ints(rows, DIFF)
    identity = columns if schema.is_multiset else [columns[schema.names.index(name)] for name in schema.key]
    groups = group(keycode(identity))
    order = by_group(groups.ids)
    for mine in np.split(order, np.flatnonzero(np.diff(groups.ids[order])) + 1):
        yield from _of_identity(shown, mine, diffs)


class _ShownRows:
    """The rows as texts, and as codes that are equal exactly where the values are."""

    def __init__(self, decoder: Decoder, schema: TableSchema, columns: list[Any], values: bool) -> None:
        self.schema = schema
        self.values = values
        self._texts = [decoder.print_values(column).to_pylist() for column in columns]
        self._codes = [keycode([column]).to_pylist() for column in columns]

    def key(self, row: int) -> Texts:
        return {name: self._texts[self.schema.names.index(name)][row] for name in self.schema.key}

    def row(self, row: int | None) -> Texts | None:
        """All values, where they may be shown."""
        if row is None or not self.values:
            return None
        return {name: self._texts[i][row] for i, name in enumerate(self.schema.names)}

    def changed_columns(self, one: int, other: int) -> tuple[str, ...]:
        return tuple(
            name
            for name, codes in zip(self.schema.names, self._codes, strict=True)
            if codes[one] != codes[other]
        )


def _of_identity(shown: _ShownRows, rows: Ints, diffs: Ints) -> Iterator[Difference]:
    """The updates of one key: a row on each side is one row that changed."""
    if len(rows) == 2 and sorted(diffs[rows].tolist()) == [-1, 1]:
        old, new = sorted(rows.tolist(), key=lambda row: int(diffs[row]))
        yield Difference(
            CHANGED,
            shown.key(new),
            shown.changed_columns(old, new),
            source=shown.row(new),
            lake=shown.row(old),
        )
        return
    for row in rows.tolist():
        more = int(diffs[row])
        kind, source, lake = (MISSING, row, None) if more > 0 else (EXTRA, None, row)
        yield Difference(
            kind, shown.key(row), copies=abs(more), source=shown.row(source), lake=shown.row(lake)
        )


@dataclass(slots=True)
class TextDifferences:
    """The texts of values without a lake form that only one side has: how many, and the first of them."""

    count: int = 0
    differences: list[Difference] = field(default_factory=list)


def text_differences(
    schema: TableSchema, source: pa.Table | None, lake: Iterable[pl.DataFrame], *, values: bool, most: int
) -> TextDifferences:
    """Find where the texts of the source and those of the lake differ; they come in parts.

    Each part has all that the lake says of its keys; `most` are named.
    """
    found = TextDifferences()
    rows = pl.DataFrame(TEXTS.empty_table() if source is None else source)
    theirs = rows.group_by(_TEXT).agg(times=pl.len().cast(pl.Int64)).with_row_index("at")
    seen = np.zeros(theirs.height, np.bool_)
    for part in lake:
        both = part.join(theirs, on=_TEXT, how="left", nulls_equal=True)
        seen[both["at"].drop_nulls().to_numpy()] = True
        more = both.select(*_TEXT, more=pl.col("times").fill_null(0) - pl.col("diff"))
        _name(found, schema, more, values=values, most=most)
    missing = theirs.filter(pl.Series(~seen)).select(*_TEXT, more=pl.col("times"))
    _name(found, schema, missing, values=values, most=most)
    return found


def _name(
    found: TextDifferences, schema: TableSchema, texts: pl.DataFrame, *, values: bool, most: int
) -> None:
    """Take in texts of which the source has so many more."""
    uneven = texts.filter(pl.col("more") != 0)
    found.count += uneven.height
    named = uneven.sort(*_TEXT).head(max(0, most - len(found.differences)))
    for key, column, raw, more in named.select(*_TEXT, "more").iter_rows():
        shown = {column: raw} if values else None
        found.differences.append(
            Difference(
                MISSING if more > 0 else EXTRA,
                _json_key(key) if not schema.is_multiset else {},
                (column,),
                abs(more),
                raw=True,
                source=shown if more > 0 else None,
                lake=shown if more < 0 else None,
            )
        )


def _json_key(key: str) -> Texts:
    """The values of a key as `errors/` writes it."""
    return {
        name: value if value is None or isinstance(value, str) else json.dumps(value)
        for name, value in json.loads(key).items()
    }
