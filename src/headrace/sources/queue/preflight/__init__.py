"""Preflight: everything that would go wrong later, found before anything is made.

    fitness      which tables a pattern names, and whether each can be captured by triggers on statements
    making       schema, queue and triggers: what will be made, whether we may, the script for who may
    examination  all of it on one connection, in this order

What `headrace check` prints and `headrace run` refuses is PostgreSQL's own list, as far as it is about rows,
rights and the server; of the log, slots and publications nothing is needed here. Nothing changes the source.
"""

from headrace.sources.queue.preflight.examination import QueueWish, examine, find_unmirrored, script
from headrace.sources.queue.preflight.fitness import unfit_tables

__all__ = ["QueueWish", "examine", "find_unmirrored", "script", "unfit_tables"]
