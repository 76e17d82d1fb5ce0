"""catalog: tables as PostgreSQL's catalog has them, with the triggers that capture them.

definitions  the look that reads them, and the memory of the last look, which is not compared again
"""
