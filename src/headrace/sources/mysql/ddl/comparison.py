"""Alterations: what lies between two looks at a table, and whether it matters.

    differs(last, now)   ──►  None, or what changed the meaning of the stream, of the copy, or of both
    is_news(last, now)   ──►  it does not differ, and the next look is to be compared with this one

A look holds nothing that means nothing to rows (`table_def`),
so all of it counts, but for two things: a unique key that is new, or that rows are not known by, and foreign
keys that are gone. The stream says most of it too, as it comes by the DDL; DDL that its session kept out of
the log (`sql_log_bin = 0`) is seen here alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.sources.mysql.catalog.column_row import ColumnRow
from headrace.sources.mysql.catalog.table_def import TableLook


def differs(last: TableLook, now: TableLook, key: Sequence[str]) -> str | None:
    """Say what changed between two looks at a table whose rows are known by `key`; None: nothing matters."""
    checks: tuple[tuple[bool, str], ...] = (
        (last.kind != now.kind, f"it is a {now.kind.lower()} now"),
        (last.engine != now.engine, f"its engine changed from {last.engine} to {now.engine}"),
        ((columns := _columns_differ(last.columns, now.columns)) is not None, str(columns)),
        (bool(key) and tuple(key) not in now.keys, "the key that its rows are known by is gone"),
        (bool(key) and last.primary != now.primary, "it was given a primary key, or lost it"),
        (
            not set(now.cascades) <= set(last.cascades),
            "it was given a foreign key that changes rows of it without a word in the log",
        ),
        # By itself it changes no row; but a statement that nobody told of may have defined a column under it.
        (last.charset not in ("", now.charset), "the charset of its texts by default was changed"),
    )
    return next((what for changed, what in checks if changed), None)


def is_news(last: TableLook, now: TableLook) -> bool:
    """Tell whether a look that does not differ shows anything that the next one must be compared with."""
    return _passing(last) != _passing(now)


def _passing(look: TableLook) -> tuple[object, ...]:
    return look.keys, look.primary, look.cascades, look.counting, look.charset


def _columns_differ(last: Sequence[ColumnRow], now: Sequence[ColumnRow]) -> str | None:
    before, after = ({column.name: column for column in columns} for columns in (last, now))
    gone = [f'"{name}"' for name in before if name not in after]
    if gone:
        return f"column {', '.join(gone)} was dropped or renamed"
    added = [f'"{name}"' for name in after if name not in before]
    if added:
        return f"column {', '.join(added)} was added"
    for name, column in before.items():
        later = after[name]
        if later.column_type != column.column_type:
            return f'the type of column "{name}" changed from {_show(column)} to {_show(later)}'
        if later != column:
            return f'column "{name}" was altered'
    return None


def _show(column: ColumnRow) -> str:
    """The type without the labels of an enum or a set: those are the application's."""
    return column.column_type if column.data_type not in ("enum", "set") else f"{column.data_type}(...)"
