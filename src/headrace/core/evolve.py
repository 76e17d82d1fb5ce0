"""Evolution: the effect of a change of columns on a table's rows.

    evolve(old, new, parts, until)  ──►  Converts   every old row becomes a new one by a pure function of it
                                         Copied     no such function exists, or none is proven

The columns alone don't show what happened to the rows in between: a rewrite (`ALTER TYPE ... USING`, a column
dropped and made anew) or the default of an added column leaves no trace in them. So the source's look at its
catalog brings the parts that it can prove. This module compares them with the two schemas; both must agree
before a table goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.core.conversion import Conversion, Part, Take, Value
from headrace.core.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Converts:
    """The table goes on under this schema, which knows what the stream may still bring."""

    schema: TableSchema
    conversion: Conversion
    rewrites: bool  # files of the old rows can't stay


@dataclass(frozen=True, slots=True)
class CopyNeeded:
    """The new schema can't follow the old one; the reason names columns and types, no values."""

    reason: str


def evolve(
    old: TableSchema,
    new: TableSchema,
    parts: Sequence[Part],
    until: int,
    between: Sequence[Conversion] | None = None,
) -> Converts | CopyNeeded:
    """Tell what the step from `old` to `new` asks for; from the time `until` on no row is an old one.

    What the stream may still bring under columns from before `old` stands in it (`TableSchema.at_time`).
    `between` are the columns from when a part of it was done, where their source says until when they were;
    then a row's columns are known by its time. Else they are known by their names.
    """
    reasons = _reasons(old, new, parts) if between is not None else _named_reasons(old, new, parts)
    reason = next(reasons, None)
    if reason is not None:
        return CopyNeeded(reason)
    step = Conversion(old.names, tuple(parts), until)
    middle = _between(new, step) if between is None else between
    earlier = (*(known.then(step) for known in old.earlier), step, *middle)
    # Rows of a table without a key are found by all of their columns.
    rewrites = not step.keeps_files or old.is_multiset or _spelled_otherwise(old, new)
    taken = [old.ids[part.column] if isinstance(part, Take) else None for part in parts]
    numbered = new.numbered_by(taken, old.last_id)
    return Converts(replace(numbered, earlier=earlier), step, rewrites)


def _between(new: TableSchema, step: Conversion) -> Iterator[Conversion]:
    """Rows from when some of the columns at the end had been added, and others not."""
    added = sum(isinstance(part, Value) for part in step.parts)
    count = len(step.parts) - added
    if any(isinstance(part, Value) for part in step.parts[:count]):
        return
    for known in range(count + 1, len(step.parts)):
        parts = (*map(Take, range(known)), *step.parts[known:])
        yield Conversion(new.names[:known], parts, step.until)


def _reasons(old: TableSchema, new: TableSchema, parts: Sequence[Part]) -> Iterator[str]:
    if not any(isinstance(part, Take) for part in parts):
        yield "no column is left of those before"
    for column, part in zip(new.columns, parts, strict=True):
        if isinstance(part, Take):
            yield from _differences(old.columns[part.column], column)
        elif not column.nullable:
            yield f'column "{column.name}" was added and can\'t be NULL'
    key = [parts[new.names.index(name)] for name in new.key]
    if key != [Take(old.names.index(name)) for name in old.key]:
        yield f"the key was ({_list(old.key)}) and is ({_list(new.key)})"
    if old.full != new.full:
        yield "whole old rows are " + ("sent now" if new.full else "no longer sent")
    if _is_same(old, parts) and new.columns == old.columns:
        yield "its columns are those that they were"


def _is_same(old: TableSchema, parts: Sequence[Part]) -> bool:
    return tuple(parts) == tuple(map(Take, range(len(old.columns))))


def _named_reasons(old: TableSchema, new: TableSchema, parts: Sequence[Part]) -> Iterator[str]:
    """Say why rows can't be converted where only the names of the columns tell which ones a row has."""
    yield from _reasons(old, new, parts)
    if new.names == old.names and not _is_same(old, parts):
        yield "its columns have the names of others before: a row does not show which it has"
    # Rows from before an earlier change may have these names too, under columns that no look has shown.
    adds = tuple(parts[: len(old.columns)]) == tuple(map(Take, range(len(old.columns))))
    if old.earlier and not (adds and new.names[: len(old.names)] == old.names):
        yield "the stream may still bring rows from before an earlier change"


def _spelled_otherwise(old: TableSchema, new: TableSchema) -> bool:
    """Tell whether files name the columns from before otherwise, or hold them under another type."""
    before = [(column.name, column.type) for column in old.columns]
    return [(column.name, column.type) for column in new.columns[: len(before)]] != before


def _differences(old: Column, new: Column) -> Iterator[str]:
    if (old.type, old.form) != (new.type, new.form) and not _is_wider(old, new):
        yield f'column "{new.name}" was {old.source_type} and is {new.source_type}'
    if new.nullable and not old.nullable:
        yield f'column "{new.name}" may be NULL now'


def _is_wider(old: Column, new: Column) -> bool:
    """Tell whether each value of the old type is one of the new, which Arrow makes of it exactly."""
    before, after = old.type, new.type
    if (old.form, new.form) == ("int", "decimal"):
        return bool(pa.types.is_decimal(after) and after.precision - after.scale >= _digits(before))
    if old.form != new.form:
        return False
    if pa.types.is_decimal(before) and pa.types.is_decimal(after):
        more = after.precision - after.scale >= before.precision - before.scale
        return bool(more and after.scale >= before.scale)
    whole = pa.types.is_signed_integer(before) and pa.types.is_signed_integer(after)
    floating = pa.types.is_floating(before) and pa.types.is_floating(after)
    return bool((whole or floating) and before.bit_width <= after.bit_width)


def _digits(type: pa.DataType) -> int:
    """The digits of the greatest value of an integer type."""
    return len(str(1 << type.bit_width - 1))


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)
