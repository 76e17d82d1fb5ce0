"""DDL of a MySQL or MariaDB server: from a statement of the log, or a look at the catalog, to a verdict.

    statement of the log ──► `statements` ──► its effects, and the steps of an ALTER TABLE of a closed form
    two looks            ──► `comparison` ──► what changed        ┐
    steps, two looks     ──► `evidence`   ──► what becomes of rows ┴──► `schema_check`

    statements        what a statement does to tables: it is read here, and nowhere kept
    alterations       the clauses of ALTER TABLE
    closed_form       statements whose every clause says all that it does to columns
    spelled_types     the types of columns, as the catalog would print them
    tokens            the words of a statement
    letters           names in capital letters on a server that compares them in small ones
    charsets          in which statements are logged
    steps             what an ALTER TABLE of a closed form did to columns
    comparison        what lies between two looks at a table, and whether it matters
    evidence          whether the statements of the stream explain what lies between two looks
    widenings         pairs of types of which each value is kept as it is
    constants         the value of an added column in rows from before
    known_statements  the statements that a table was followed through, in its record
    volatile          generated columns that may hang on the session that computes them
    expressions       the kind of value that a generated column's expression makes, for every session
    value_kinds       the kinds, and which convert and compare alike in every session
    schema_check      whether tables are what was recorded of them

The receiver loads what stands below `steps`, and no Arrow with it.
"""
