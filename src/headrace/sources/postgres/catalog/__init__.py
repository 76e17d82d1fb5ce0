"""catalog: what the server's catalog says of tables and locks.

    table_def         what a table is, in a form that can be compared, and as a record
    definitions       the statement that reads it, for many tables at once, and the memory of the last look
    partition_tree    what is beneath a partitioned table, and what of that may have moved rows
    rights            which tables a copy could not read, though they are followed
    locks             who holds the lock that we wait for; how big a table is

Reads only. Asked by everything from preflight to the check before each mark.
"""
