"""Preflight: find everything that would go wrong later, before anything is made.

`headrace check` prints the findings of `examine`; `headrace run` refuses to start if one is an error. A
finding is a value with a stable code and the statements that mend it, if there are any, so a test can run
them and look again.

    variables    the server's settings, and the statement that sets one
    binlog       the log: whole rows, described columns, names, one order, retention
    replication  a server that is a replica itself; filters; prepared transactions
    grants       our privileges, by the server's own answers
    server       all checks that are not about a table
    hosting      the cloud that hosts the server, and findings in its words
    tables       the tables of a pattern, and whether each can be mirrored
    examination  all checks on one connection, by a wish in MySQL's words; DDL that is costly for certain
    tables
    script       the statements that mend the findings, in an order that works

Nothing here changes the source, and nothing of ours is ever made there. If only a wildcard names a table with
an error, the table is left out (`CheckReport.left_out`) and the others are mirrored.
"""

from headrace.sources.mysql.preflight.examination import MysqlWish, examine, examine_tables, list_unmirrored
from headrace.sources.mysql.preflight.script import script

__all__ = ["MysqlWish", "examine", "examine_tables", "list_unmirrored", "script"]
