"""Evolution: may a table go on under a new schema, and what does the lake have to do?

    Same            nothing: every value is decoded and stored as before
    AddedNullable   the lake's table gets these columns; older rows read as NULL there
    Incompatible    the table must be stopped or reconciled, and why

This compares what two versions *say*. It can't see what happened to the rows in between: a rewrite
(`ALTER TYPE ... USING`, a column dropped and made anew) or the default of an added column leaves no trace
in a schema. The look at the source's catalog does that; both must agree before a table goes on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.core.schema import Column, TableSchema


@dataclass(frozen=True, slots=True)
class Same:
    """The new schema stores and decodes as the old one did."""


@dataclass(frozen=True, slots=True)
class AddedNullable:
    """The new schema has these columns more, in its own order."""

    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class Incompatible:
    """The new schema can't follow the old one; the reason names columns and types, no values."""

    reason: str


def evolve(old: TableSchema, new: TableSchema) -> Same | AddedNullable | Incompatible:
    """Tell what the step from `old` to `new` asks for."""
    added = tuple(column for column in new.columns if column.name not in old.names)
    reason = next(_reasons(old, new, added), None)
    if reason is not None:
        return Incompatible(reason)
    return AddedNullable(added) if added else Same()


def _reasons(old: TableSchema, new: TableSchema, added: tuple[Column, ...]) -> Iterator[str]:
    now = {column.name: column for column in new.columns}
    for column in old.columns:
        if column.name not in now:
            yield f'column "{column.name}" is gone'
        else:
            yield from _differences(column, now[column.name])
    if tuple(name for name in new.names if name in old.names) != old.names:
        yield "the columns are in another order"
    if old.key != new.key:
        yield f"the key was ({_list(old.key)}) and is ({_list(new.key)})"
    if old.full != new.full:
        yield "whole old rows are " + ("sent now" if new.full else "no longer sent")
    for column in added:
        if not column.nullable:
            yield f'column "{column.name}" was added and can\'t be NULL'


def _differences(old: Column, new: Column) -> Iterator[str]:
    if (old.type, old.form) != (new.type, new.form):
        yield f'column "{old.name}" was {old.source_type} and is {new.source_type}'
    if new.nullable and not old.nullable:
        yield f'column "{old.name}" may be NULL now'


def _list(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)
