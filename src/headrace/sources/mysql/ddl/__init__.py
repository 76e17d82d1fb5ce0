"""DDL of a MySQL or MariaDB server: from a statement of the log, or a look at the catalog, to a verdict.

    statement of the log ──► `statements` ──► its effects, and the steps of an ALTER TABLE in a closed form
    steps, two looks     ──► `evidence`   ──► the effect on rows ──► `schema_check`

    statements        the effects of a statement on tables; its text is read here and kept nowhere
    alterations       the clauses of ALTER TABLE
    closed_form       statements whose every clause says all that it does to columns
    tokens            the words of a statement: its charset, and the case of its names
    steps             the steps of an ALTER TABLE in a closed form
    evidence          the proof that the statements of the stream explain the difference between two looks
    values            the type changes that keep each value, and the value of an added column in older rows
    known_statements  the statements that a table was followed through, in its record
    volatile          generated columns that may depend on the session that computes them
    expressions       the kind of value of a generated column's expression, if no session decides it
    schema_check      the differences between two looks at a table, and whether they matter

The receiver loads only the modules up to `steps`, and no Arrow.
"""
