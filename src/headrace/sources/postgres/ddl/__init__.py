"""DDL of a PostgreSQL server, found by comparing two looks at the catalog: the stream brings no DDL.

    schema_check   before each mark: do tables match their records, and which may be changing now?
    alteration     the difference between two looks at a table, and whether it matters
    emptiness      which of the new partitions brought no rows

The queue's schema check compares the same looks.
"""
