"""The catalog of MySQL and MariaDB: information_schema, as far as a mirror depends on it.

    candidates    the tables and views that a pattern may name, and their sizes
    questions     queries about tables that are known by name, in few statements; busy and denied tables
    definitions   the look at tables as they are now
    table_def     a look at a table, its record, and the lake's schema of it

This room reads descriptions of tables only, and writes nothing: SELECT on a table is enough to see all of it.
"""
