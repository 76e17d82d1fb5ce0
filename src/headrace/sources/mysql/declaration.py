"""The declarations of MySQL and MariaDB (`sources.contract.values`): two kinds in one folder.

The address says which of the two a server is, because a lake's records do: their positions are spelled
differently.

`handoff` decides how a copy takes its moments. Either all tables and readers share one moment, under read
locks that are held for some milliseconds. Or each chunk of a table has a moment of its own, under a lock of
its own.

`unlogged_cascades` allows a table that we cannot prove to be exact: a foreign key lets the server change or
remove its rows, and the server does not log that. A user who accepts this guarantees that the application
never changes a row to which such a rule applies.
"""

from __future__ import annotations

from headrace.sources.contract.values import COLUMNS, Declaration, Option

REFUSE, ACCEPT = "refuse", "accept"
UNLOGGED_CASCADES = Option(
    "unlogged_cascades",
    "tables whose foreign keys change rows without a word in the log; accept: no such change ever happens",
    default=REFUSE,
    choices=(REFUSE, ACCEPT),
)

LOCKS, CHUNKS = "locks", "chunks"
HANDOFF = Option(
    "handoff",
    "how a snapshot is joined to the stream",
    default=LOCKS,
    choices=(LOCKS, CHUNKS),
)


_PASSWORD = "MYSQL_PWD, or defaults-file=... in it"
_OPTIONS = (HANDOFF, UNLOGGED_CASCADES, COLUMNS)

DECLARATION = Declaration("mysql", "MySQL", schemes=("mysql",), password=_PASSWORD, options=_OPTIONS)
MARIADB_DECLARATION = Declaration(
    "mariadb", "MariaDB", schemes=("mariadb",), password=_PASSWORD, options=_OPTIONS
)
