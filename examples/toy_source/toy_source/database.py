"""The file: how it is opened, and what a user makes in it once (`prepare`)."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from headrace.core.errors import Misconfigured, PositionLost, Transient

TABLES = """
CREATE TABLE IF NOT EXISTS headrace_table (number INTEGER PRIMARY KEY, name TEXT UNIQUE);
CREATE TABLE IF NOT EXISTS headrace_history (id TEXT);
INSERT INTO headrace_history SELECT lower(hex(randomblob(8)))
    WHERE NOT EXISTS (SELECT 1 FROM headrace_history);
CREATE TABLE IF NOT EXISTS headrace_change (
    number INTEGER PRIMARY KEY AUTOINCREMENT, at INTEGER, relation INTEGER, old TEXT, new TEXT
);
"""
_NOW = "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)"


class HistoryLost(Misconfigured, PositionLost):
    """The file is another one, or changes that were not read are gone."""

    codes = ("TOY_HISTORY_LOST",)


@contextmanager
def open_file(path: str) -> Iterator[sqlite3.Connection]:
    with closing(connect(path)) as connection:
        yield connection


def connect(path: str) -> sqlite3.Connection:
    """Open the file for reading; each statement is a transaction until somebody begins one."""
    try:
        connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
        connection.execute("SELECT id FROM headrace_history").fetchone()
    except sqlite3.Error as error:
        raise Transient(
            "TOY_UNREADABLE",
            f'the file "{path}" cannot be read',
            detail=str(error),
            hint="see that it is there, and that toy_source.database.prepare was run on it",
        ) from None
    return connection


def prepare(path: str, *names: str) -> None:
    """Have changes of these tables written down. What a table held before is in its copy."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA journal_mode = wal")
        connection.executescript(TABLES)
        for name in names:
            connection.execute("INSERT OR IGNORE INTO headrace_table (name) VALUES (?)", [name])
            columns = [row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')]
            for what, sides in {"INSERT": "new", "UPDATE": "old new", "DELETE": "old"}.items():
                old, new = (_row(side, columns) if side in sides else "NULL" for side in ("old", "new"))
                connection.execute(
                    f'CREATE TRIGGER IF NOT EXISTS "headrace_{name}_{what}" AFTER {what} ON "{name}" BEGIN'
                    f" INSERT INTO headrace_change (at, relation, old, new) SELECT {_NOW}, number,"
                    f" {old}, {new} FROM headrace_table WHERE name = '{name}'; END"
                )


def _row(side: str, columns: list[str]) -> str:
    return f"json_array({', '.join(f'{side}.{column!r}' for column in columns)})".replace("'", '"')


def history(connection: sqlite3.Connection) -> str:
    """The name of the file's history: a copy of the file that is written to is another one's."""
    [(name,)] = connection.execute("SELECT id FROM headrace_history")
    return str(name)


def newest(connection: sqlite3.Connection) -> int:
    """The number of the newest change; those of a transaction are seen together."""
    [(number,)] = connection.execute("SELECT coalesce(max(number), 0) FROM headrace_change")
    return int(number)


def prove(connection: sqlite3.Connection, identity: str, reached: int) -> None:
    """Raise unless this is that file and has all that was reached."""
    if history(connection) != identity or newest(connection) < reached:
        raise HistoryLost(
            "TOY_HISTORY_LOST",
            "the file is not the one that was followed, or an older copy of it",
            hint="headrace run --reconcile",
        )
