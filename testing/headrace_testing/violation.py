"""A violation that a validator found: a guarantee that does not hold, where, and what differs.

How much of the rows it shows is the caller's choice. Without it there are counts only, so that a report
may be printed wherever tests are; keys and values of a test's own rows help whoever looks for the cause.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

SHOWN = 5


@dataclass(frozen=True, slots=True)
class Violation:
    """A guarantee that does not hold, where, and what differs."""

    guarantee: str
    table: str
    what: str
    epoch: int | None = None
    time: int | None = None

    def __str__(self) -> str:
        mark = "" if self.epoch is None else f" at epoch {self.epoch}"
        time = "" if self.time is None else f" at time {self.time}"
        return f"{self.guarantee} {self.table}{mark}{time}: {self.what}"


@dataclass(frozen=True, slots=True)
class Show:
    """The rows that a violation may show of those that differ, besides how many there are."""

    keys: Mapping[str, Sequence[str]] | None = None
    values: bool = False

    def describe(self, rows: pl.DataFrame, table: str, columns: Sequence[str]) -> str:
        surplus = int(rows.filter(pl.col("n") > 0)["n"].sum())
        lacking = -int(rows.filter(pl.col("n") < 0)["n"].sum())
        text = f"{surplus} rows too many, {lacking} too few"
        shown = columns if self.values else (self.keys or {}).get(table, ())
        if not shown:
            return text
        # By place and not by name: a column may be called as ours is.
        picked = rows.sort("n").head(SHOWN).select("n", *(f"c{columns.index(name)}" for name in shown))
        some = [f"{count:+d} x " + _named(shown, values) for count, *values in picked.rows()]
        return f"{text}: {'; '.join(some)}"


def _named(names: Sequence[str], values: Sequence[object]) -> str:
    return ", ".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
