"""Names of columns that differ only in case: the lake holds one of them. Pure; called by the checks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count


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
