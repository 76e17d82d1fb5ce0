"""DDL of a PostgreSQL server: what two looks at the catalog tell of it, since the stream tells nothing.

schema_check    whether tables are what was recorded, before each mark
alteration      what differs between two looks at a table, and whether it matters
unfinished_ddl  the tables that somebody may be changing just now
emptiness       which of the partitions that came had nothing to bring
"""
