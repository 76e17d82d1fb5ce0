"""catalog: what the server's catalog says of tables, types and locks.

    table_def         what a table is, in a form that can be compared; and the look that reads it
    table_def_record  the same as a record of the lake's catalog
    alteration        what differs between two looks at a table, and whether it matters
    types             from the source's types to columns of the lake
    locks             who holds the lock that we wait for

Reads only. Asked by everything from preflight to the check before each mark.
"""
