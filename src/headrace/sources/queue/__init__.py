"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut them, no replication is needed.

application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2      (its transaction)
receiver    ─► tick  ─ pg_current_snapshot()
             ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

objects      the names of what is made, and the record of it
statements   the SQL that makes and removes it
creation     the schema and the queue: made, checked, removed
declaration, options, address     what it says of itself, and reads of its options; its addresses
position, spelling       places in the stream, as times and as texts
tick, batch  the cuts, and what lies between two of them as a query
readers      who reads, and how far
identity, upstream       the same server, and the same queue with our newest tick
stream, stream_source    ticks to bytes, for the spool
context, decoding, slicing, decoder    bytes to change batches
snapshot     PostgreSQL's, joined to ticks
log_end      how far it is, and by what clock
"""
