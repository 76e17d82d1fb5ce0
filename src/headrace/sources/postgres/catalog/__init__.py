"""catalog: the tables and locks in the server's catalog.

    table_def         the definition of a table, in a form that can be compared, and as a record
    definitions       the statement that reads many definitions at once, and the memory of the last look
    partition_tree    the tables beneath a partitioned table, and the changes to them that may have moved rows
    rights            the tables that are followed, but that a copy could not read
    locks             the holders of locks that we wait for; the sizes of tables

Reads only. Preflight, captures, copies and the check before each mark use it.
"""
