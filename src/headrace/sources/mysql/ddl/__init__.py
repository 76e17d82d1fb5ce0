"""DDL of a MySQL or MariaDB server: from a statement of the log, or a look at the catalog, to a verdict.

    statement of the log ──► `statements` ──► its effects, and the steps of an ALTER TABLE of a closed form
    steps, two looks     ──► `evidence`   ──► what becomes of rows ──► `schema_check`

    statements        what a statement does to tables: it is read here, and nowhere kept
    alterations       the clauses of ALTER TABLE
    closed_form       statements whose every clause says all that it does to columns
    tokens            the words of a statement: its charset, and the case of its names
    steps             what an ALTER TABLE of a closed form did to columns
    evidence          whether the statements of the stream explain what lies between two looks
    values            the types under which each value is kept, and the value of an added column in older rows
    known_statements  the statements that a table was followed through, in its record
    volatile          generated columns that may hang on the session that computes them
    expressions       the kind of value that a generated column's expression makes, for every session
    schema_check      what lies between two looks at a table, and whether it matters

The receiver loads what stands below `steps`, and no Arrow with it.
"""
