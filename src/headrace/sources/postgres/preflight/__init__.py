"""Preflight: find everything that would go wrong later, before anything is made.

`headrace check` prints the findings of `examine`; `headrace run` refuses to start if one is an error. A
finding is a value with a stable code and the statements that mend it, if there are any, so a test can run
them and look again.

    wish       the wish in PostgreSQL's words
    server     settings, free slots and senders, standby, version, log that the copy will hold back
    tables     the tables of a pattern; identities, privileges, row security, types of each table
    roots      partitioned tables: the tables of a tree that are mirrored, and whether its root can be
    upstream_objects  publication and slot: the user's own and their tables, or whether ours can be made
    failover   what keeps a standby from taking over our stream
    hosting    the cloud that hosts the server, and findings in its words
    examination       all checks on one connection, in this order; leftovers of earlier lakes; DDL that
                      is costly for certain tables
    script     the statements that mend the findings, in an order that works

Nothing here changes the source. A table with an error is not among `CheckReport.tables`, so it never gets
into a publication, and the application's own UPDATE and DELETE never fail because of us. If only a wildcard
names such a table, it is left out (`CheckReport.left_out`) and the others are mirrored.
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
