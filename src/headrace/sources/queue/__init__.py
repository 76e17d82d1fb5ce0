"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut them, no replication is needed.

application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2      (its transaction)
receiver    ─► tick  ─ pg_current_snapshot()
             ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

objects      the names of what is made, and the record of it
statements   the SQL that makes and removes it
creation     the schema and the queue: made, checked, removed
"""
