"""The catalog of MySQL and MariaDB: information_schema, as far as a mirror depends on it.

    candidates    the tables and views that a pattern may name, and how big they are
    questions     about tables that are known by name, in few statements: some are busy, some denied
    definitions   looking: tables as they are now
    table_def     a look at a table, its record, and what of it the lake is told

Nothing is read here but descriptions, and nothing is written: SELECT on a table shows all of it.
"""
