"""The sentences that `run`, `status` and `verify` share: which tables stopped, wait or are not mirrored.

They are made from a status, so a terminal, a log and `status` show the same words.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from headrace.lake.format.status import AlterationStatus, TableStatus

NOT_ADDED = "TABLE_NOT_ADDED"
NAMED = 5
_COPIED = "it is copied anew and comes back by itself; there is nothing to do"
_WAYS = {
    "added": ("no file is written", "no file was written"),
    "rewritten": (
        "its rows are written again in the lake; there is nothing to do",
        "its rows were written again in the lake",
    ),
    "copied": (_COPIED, "it was copied anew and is back in the marks"),
}


def stop(name: str, table: TableStatus) -> str | None:
    """Say why a table stopped, and where; None if it goes on, or comes back by itself."""
    error, at = table.error, table.stopped_at
    if table.state != "stopped" or not error or table.follows:
        return None
    detail = f" ({error['detail']})" if error.get("detail") else ""
    where = f" at {at}" if at else ""
    return f"{name} stopped{where}: {error['code']}: {error['primary']}{detail}; {error['hint']}"


def copied_anew(name: str, table: TableStatus) -> str | None:
    """Say why a stopped table is copied anew beside the old; None for any other table."""
    if table.state != "stopped" or not table.follows or table.copied_anew is None or not table.error:
        return None
    primary = str(table.error["primary"])
    return f"{primary if name in primary else f'{name}: {primary}'}; {_COPIED}"


def waits(name: str, table: TableStatus) -> str | None:
    """Say when headrace tries a table again that it could not take up; None for any other table."""
    error = table.error
    if not table.follows or table.is_missing or table.retry_at is None or error is None:
        return None
    detail = f" ({error['detail']})" if error.get("detail") else ""
    at = f"{table.retry_at[:19]}Z"
    return (
        f"{name} is in no mark: {error['code']}: {error['primary']}{detail}; next try {at}; {error['hint']}"
    )


def gone_line(tables: Mapping[str, TableStatus]) -> str | None:
    """Name the tables that are gone at the source; None if there are none."""
    names = [name for name, table in tables.items() if table.is_missing]
    if not names:
        return None
    return (
        f"not at the source any more: {', '.join(names)}; each comes back by itself if it is made again; "
        f"if it is gone for good: headrace tables drop {' '.join(names)}"
    )


def back(name: str, table: TableStatus) -> str:
    """Say that a table is in the marks again."""
    since = f", exact since {table.since}" if table.since is not None else ""
    return f"{name} is back in the marks{since}"


def unseen_line(name: str, table: TableStatus) -> str | None:
    """Say since when a lock keeps a table out of the marks; None for any other table."""
    if table.unseen_since is None:
        return None
    who = f": {table.holder}" if table.holder else ""
    return f"{name} is in no mark since {table.unseen_since}: it is locked{who}; it comes back by itself"


def columns_left_out(tables: Mapping[str, TableStatus]) -> Iterator[str]:
    """Name the columns that are not in the lake because the source does not send them."""
    found = {name: each.columns_left_out for name, each in tables.items() if each.columns_left_out}
    lacking = [f"{name} ({', '.join(columns)})" for name, columns in found.items()]
    if lacking:
        more = f" and {len(lacking) - NAMED} more" if len(lacking) > NAMED else ""
        yield f"generated columns that are not in the lake: {', '.join(lacking[:NAMED])}{more}"


def alteration(change: AlterationStatus, table: TableStatus | None = None) -> str:
    """Say which DDL was followed, and how; if the `table` is in the marks, say it as done."""
    now, then = _WAYS.get(change.way, (change.way, change.way))
    is_over = table is not None and table.state == "live" and table.unseen_since is None
    return f"{change.what}; {then if is_over else now} (mark {change.epoch} at {change.at})"


def unmirrored_lines(codes: Mapping[str, str]) -> Iterator[str]:
    """Name the tables that match the patterns but are not mirrored, a line for each reason's code."""
    names = defaultdict(list)
    for name, code in codes.items():
        names[code].append(name)
    for code, these in sorted(names.items()):
        more = f" and {len(these) - NAMED} more" if len(these) > NAMED else ""
        what = "headrace tables add mirrors them" if code == NOT_ADDED else "headrace check says more"
        yield f"not mirrored, {code}: {', '.join(these[:NAMED])}{more}; {what}"
