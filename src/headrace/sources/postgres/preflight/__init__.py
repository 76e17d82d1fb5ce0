"""Preflight: everything that would go wrong later, found before anything is made.

`headrace check` prints what `examine` finds; `headrace run` refuses to start on an error among it. Each
finding is a value with a stable code and, where a statement mends it, that statement, so that a test
can run it and look again.

    wish       what is wished for, in PostgreSQL's words
    server     settings, free slots and senders, standby, version, log that the copy will hold back
    tables     what a pattern names; identities, privileges, row security, types of each table
    roots      partitioned tables: which of a tree is mirrored, and whether its root can be
    upstream_objects  publication and slot: the user's own and their tables, or whether ours can be made
    examination       all of it on one connection, in this order; what an earlier lake left; changes of shape
                      that cost more of a table than of others
    script     the statements that mend what was found, in an order that works

Nothing here changes the source. A table with an error is not among `CheckReport.tables`, so it never gets
into a publication, and the application's own UPDATE and DELETE never fail because of us. Where only a
wildcard names such a table it is left out (`CheckReport.left_out`) and stands against nothing else.
"""

from headrace.sources.postgres.preflight.examination import examine, find_unmirrored
from headrace.sources.postgres.preflight.script import script
from headrace.sources.postgres.preflight.upstream_objects import unfit_members, unfit_tables
from headrace.sources.postgres.preflight.wish import PostgresWish

__all__ = [
    "PostgresWish",
    "examine",
    "find_unmirrored",
    "script",
    "unfit_members",
    "unfit_tables",
]
