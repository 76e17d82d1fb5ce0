"""catalog: tables as PostgreSQL's catalog has them, with the triggers that capture them.

definitions  the look that reads them, and what the last one brought
look_memory  what the last looks brought, which is not compared again
"""
