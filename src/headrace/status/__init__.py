"""One read-only picture of a lake and its sources, for the command line, the web page and metrics.

It is made from files of the lake: the record that a run writes about once a second
(`lake.format.statusfile`), and the catalog, which knows the tables even if there is no run. So it needs no
connection, no password and no Spark, and it never writes.

    picture     the picture: sources, tables, the age of each record
    faults      the faults of a source, by code, for monitoring
    watch       the newest picture of a lake, shared by all who ask, and an hour of samples
    problems    the problems of a lake, the gravest first, with the commands to type
    summary     a lake and its sources in a few words: the first line, states, facts, copies
    pace        the last minute of a source: marks, changes, bytes copied
    words       figures and times for people
    details     the newest marks and the columns of a table, which no status holds
    sentences   lines of `run`, `status` and `verify` on tables that stopped, wait or are not mirrored
"""
