"""DDL of a PostgreSQL server: what two looks at the catalog tell of it, since the stream tells nothing.

    schema_check   whether tables are what was recorded, before each mark, and who may be changing one
    alteration     what differs between two looks at a table, and whether it matters
    emptiness      which of the partitions that came had nothing to bring

The queue's own schema check goes by the same looks.
"""
