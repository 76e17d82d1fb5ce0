"""The catalog of MySQL and MariaDB: information_schema, as far as a mirror depends on it.

    candidates    the tables and views that a pattern may name
    questions     about tables that are known by name, in few statements
    busy          the error of a table that the server cannot show now
    denials       tables that are hidden from us for want of a privilege
    definitions   looking: tables as they are now
    table_def     a look at a table, its record, and what of it the lake is told
    column_row    one column as the server describes it
    sizes         how big tables are

Nothing is read here but descriptions, and nothing is written: SELECT on a table shows all of it.
"""
