"""catalog: tables in PostgreSQL's catalog, with the triggers that capture them.

definitions  the look that reads them, and the memory of the last look, which saves comparisons
"""
