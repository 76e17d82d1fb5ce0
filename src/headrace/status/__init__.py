"""One read-only picture of a lake and its sources, for the command line, the web page and metrics.

It is put together from what stands in the lake: the record that a run writes about once a second
(`lake.format.statusfile`), and the catalog, which knows the tables also when nobody runs. So it needs no
connection, no password and no Spark, and it never writes.

    picture     the picture: sources, tables, how old what is said is
    faults      what is wrong with a source, by code, for monitoring
    watch       the newest picture of a lake for everybody who asks, and an hour of samples
    problems    what is wrong, the gravest first, and what to type
    summary     a lake and its sources in a few words: the first line, states, facts, copies
    pace        the last minute of a source: marks, changes, bytes copied
    words       figures and moments as people read them
    details     the newest marks and the columns of a table, which no status holds
    sentences   what `run`, `status` and `verify` say of tables that stopped, or that nobody mirrors
"""
