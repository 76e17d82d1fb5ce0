"""The file: how it is opened, and what a user makes in it once (`prepare`)."""

from __future__ import annotations

import json
import sqlite3

from headrace.core.errors import Misconfigured, PositionLost, Transient
from headrace.core.position import Position
from toy_source.spelling import change_of, position

TABLES = (
    "CREATE TABLE IF NOT EXISTS headrace_table"
    " (number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT UNIQUE, columns TEXT)",
    "CREATE TABLE IF NOT EXISTS headrace_history (id TEXT)",
    "CREATE TABLE IF NOT EXISTS headrace_change (number INTEGER PRIMARY KEY AUTOINCREMENT,"
    " at INTEGER, relation INTEGER, old TEXT, new TEXT)",
    "INSERT INTO headrace_history SELECT lower(hex(randomblob(8)))"
    " WHERE NOT EXISTS (SELECT 1 FROM headrace_history)",
)
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"
_PREPARE = "see that the file is there, and run toy_source.database.prepare on it"


class HistoryLost(Misconfigured, PositionLost):
    """Changes that were not read are gone, or the file is an older copy."""

    codes = ("TOY_HISTORY_LOST",)


def history_lost() -> HistoryLost:
    return HistoryLost(
        "TOY_HISTORY_LOST",
        "the file lacks changes that were read, or that are to be read",
        hint="headrace run --reconcile",
    )


def connect(path: str) -> sqlite3.Connection:
    """Open the file for reading; each statement is a transaction until somebody begins one."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        connection.execute("SELECT id FROM headrace_history").fetchone()
    except sqlite3.Error as error:
        message = f'the file "{path}" cannot be read'
        raise Transient("TOY_UNREADABLE", message, detail=str(error), hint=_PREPARE) from None
    return connection


def columns_of(connection: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in connection.execute(f"PRAGMA table_info({quoted(table)})")]


def prepare(connection: sqlite3.Connection, *tables: str) -> None:
    """Have changes of these tables written down, also under new columns. Their rows come by the copy."""
    for statement in TABLES:
        connection.execute(statement)
    for table in tables:
        columns, made = columns_of(connection, table), triggers(connection, table)
        known = "SELECT number FROM headrace_table WHERE name = ? AND columns = ?"
        [number] = connection.execute(known, [table, json.dumps(columns)]).fetchone() or [None]
        if f"headrace_{number}_DELETE" in made:
            continue
        for trigger in made:
            connection.execute(f"DROP TRIGGER {trigger}")
        insert = "INSERT OR REPLACE INTO headrace_table (name, columns) VALUES (?, ?)"
        number = connection.execute(insert, [table, json.dumps(columns)]).lastrowid
        for what, sides in {"INSERT": "new", "UPDATE": "old new", "DELETE": "old"}.items():
            old, new = (_row(side, columns) if side in sides else "NULL" for side in ("old", "new"))
            connection.execute(
                f"CREATE TRIGGER headrace_{number}_{what} AFTER {what} ON {quoted(table)} BEGIN INSERT INTO"
                f" headrace_change (at, relation, old, new) VALUES ({_NOW}, {number}, {old}, {new}); END"
            )


def triggers(connection: sqlite3.Connection, table: str) -> list[str]:
    found = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'trigger' AND tbl_name = ? AND name LIKE 'headrace_%'",
        [table],
    )
    return [name for (name,) in found.fetchall()]


def _row(side: str, columns: list[str]) -> str:
    return f"json_array({', '.join(f'{side}.{quoted(column)}' for column in columns)})"


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def end(connection: sqlite3.Connection) -> Position:
    """The position behind the newest change; those of a transaction are seen together."""
    newest = "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'headrace_change'"
    [(number,)] = connection.execute(newest)
    return position(number, _moment(connection, number))


def _moment(connection: sqlite3.Connection, number: int) -> int:
    found = connection.execute("SELECT at FROM headrace_change WHERE number = ?", [number]).fetchone()
    return int(found[0]) if found else 0


def history(connection: sqlite3.Connection) -> str:
    [(name,)] = connection.execute("SELECT id FROM headrace_history")
    return str(name)


def prove_history(connection: sqlite3.Connection, known: str) -> None:
    """Raise if this is another file than the one that was followed."""
    if history(connection) != known:
        raise Misconfigured(
            "TOY_ANOTHER_FILE",
            "the file is not the one that was followed",
            hint="give the path of that file, or mirror this one into another lake",
        )


def prove_changes(connection: sqlite3.Connection, until: Position) -> None:
    """Raise unless the file has the change that was read last, and each change behind it."""
    (number, at), (newest, _) = change_of(until.text), change_of(end(connection).text)
    behind = connection.execute("SELECT count(*) FROM headrace_change WHERE number > ?", [number]).fetchone()
    if _moment(connection, number) != at or newest - number != behind[0]:
        raise history_lost()
