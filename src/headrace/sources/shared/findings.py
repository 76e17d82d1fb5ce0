"""Checks of columns that sources share: names that differ only in case, keys with doubtful values. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import count

from headrace.core.schema import Column, TableSchema


def new_names(names: Sequence[str]) -> dict[str, str]:
    """Propose a new name for each one that differs from an earlier one only in case."""
    taken = {name.casefold() for name in names}
    met: set[str] = set()
    proposed: dict[str, str] = {}
    for name in names:
        if name.casefold() in met:
            proposed[name] = next(new for k in count(2) if (new := f"{name}_{k}").casefold() not in taken)
            taken.add(proposed[name].casefold())
        met.add(name.casefold())
    return proposed


def doubtful_keys(schema: TableSchema, doubtful_key: Callable[[Column], str | None]) -> str | None:
    """List the values that would stop the table if a column of its key held them; None if there are none."""
    columns = [column for column in schema.columns if column.name in schema.key]
    listed = [f'{values} in "{c.name}"' for c in columns if (values := doubtful_key(c)) is not None]
    return ", and ".join(listed) or None
