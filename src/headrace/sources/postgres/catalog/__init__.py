"""catalog: what the server's catalog says of tables and locks.

    table_def         what a table is, in a form that can be compared, and as a record
    definitions       the statement that reads it, for many tables at once; what a pattern may name
    entry_memory      what the last look brought, so that what did not change is not read again
    partition_tree    what is beneath a partitioned table, and what of that may have moved rows
    rights            which tables a copy could not read, though they are followed
    sizes             how big a table is
    locks             who holds the lock that we wait for

Reads only. Asked by everything from preflight to the check before each mark.
"""
