"""The catalog of MySQL and MariaDB: information_schema, as far as a mirror depends on it.

    candidates    the tables and views that a pattern may name
    questions     about tables that are known by name, in few statements
    busy          the error of a table that the server cannot show now
    denials       tables that are hidden from us for want of a privilege
    definitions   looking: tables as they are now
    alteration    what lies between two looks at a table, and whether it matters
    evidence      whether the statements of the stream explain what lies between two looks
    widenings     pairs of types of which each value is kept as it is
    constants     the value of an added column in rows from before
    table_def     a look at a table, its record, and what of it the lake is told
    column_row    one column as the server describes it
    types         from that to a column of the lake, and how a copy selects it
    expressions   the kind of value that a generated column's expression makes, if it is one for every session
    value_kinds   the kinds, and which convert and compare alike in every session
    volatile      generated columns that may hang on the session that computes them
    sizes         how big tables are

Nothing is read here but descriptions, and nothing is written: SELECT on a table shows all of it.
"""
