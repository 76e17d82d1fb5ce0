"""MySQL and MariaDB as they introduce themselves (`sources.contract.values`): two kinds, of one folder.

The address says which of the two a server is, since a lake's records do: its positions are spelled otherwise.

The options that a mirror of MySQL or MariaDB has beside those of every source.

`handoff` says how a copy comes to its moments: all tables and readers in one, under read locks that are held
for some milliseconds, or a chunk of a table at a time, each under a lock of its own.

`unlogged_cascades` is the one way to mirror what we cannot see to be exact: a table that has a foreign key by
whose rule the server changes or removes its rows, and writes nothing of it into its log. Whoever accepts that
answers for it that the application never changes a row to which such a rule applies.
"""

from __future__ import annotations

from headrace.sources.contract.values import Declaration, Option

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
_OPTIONS = (HANDOFF, UNLOGGED_CASCADES)

DECLARATION = Declaration("mysql", "MySQL", schemes=("mysql",), password=_PASSWORD, options=_OPTIONS)
MARIADB_DECLARATION = Declaration(
    "mariadb", "MariaDB", schemes=("mariadb",), password=_PASSWORD, options=_OPTIONS
)
