"""Preflight: find everything that would go wrong later, before anything is made.

    fitness      the tables of a pattern, and whether statement triggers can capture each
    making       schema, queue and triggers: our rights to make them, the script for a user with more rights
    examination  all checks on one connection, in this order

The checks of rows, rights and the server are PostgreSQL's own; those of the log, slots and publications do
not apply here. Nothing changes the source.
"""

from headrace.sources.queue.preflight.examination import QueueWish, examine, find_unmirrored, script
from headrace.sources.queue.preflight.fitness import unfit_tables

__all__ = ["QueueWish", "examine", "find_unmirrored", "script", "unfit_tables"]
