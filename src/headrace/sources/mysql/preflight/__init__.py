"""Preflight: everything that would go wrong later, found before anything is made.

`headrace check` prints what `examine` finds; `headrace run` refuses to start on an error among it. Each
finding is a value with a stable code and, where a statement mends it, that statement, so that a test
can run it and look again.

    variables    the server's settings, and the statement that sets one
    binlog       the log: whole rows, columns that say what they are, names, one order; how long it lasts
    replication  a server that is a replica itself; filters; transactions that are prepared
    grants       what this user may do, by the server's own answers
    server       all of it that is not about a table
    tables       what a pattern names, and whether each of those can be mirrored
    examination  everything on one connection, by a wish in MySQL's words; costly changes of shape
    script       the statements that mend what was found, in an order that works

Nothing here changes the source, and nothing of ours is ever made there. What is wrong with a table that only
a wildcard names leaves it out (`CheckReport.left_out`) and stands against nothing else.
"""

from headrace.sources.mysql.preflight.examination import MysqlWish, examine, examine_tables, list_unmirrored
from headrace.sources.mysql.preflight.script import script

__all__ = ["MysqlWish", "examine", "examine_tables", "list_unmirrored", "script"]
