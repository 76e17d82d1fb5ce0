"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut them, no replication is needed.

    application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2    (its transaction)
    receiver    ─► tick  ─ pg_current_snapshot()
                 ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

What is PostgreSQL's own it has from the folder beside it: sessions, catalog, types, snapshots, COPY.

    objects      the names of what is made, and the record of it
    statements   the SQL that makes and removes it
    trust        whose objects a queue may consist of, and what may hang on them
    creation     the schema and the queue in it: made, or refused
    triggers     the triggers of one table: read, made, taken away
    definitions  tables as PostgreSQL's catalog has them, with their triggers
    partitions   what is beneath a partitioned table: how its rows become the root's, and from when on
    attachments  the partitions that came, as ticks show them: of some no look tells
    emptiness    which partitions that were attached brought no row
    printed_rows writers whose rows were printed by what a type was, which are let end
    capture      which tables have triggers, for which lake; `tables` says it as the contract wants it
    layouts      under which columns a row was written, where tables are altered between ticks
    ddl          between which ticks columns came and went
    following    what becomes of tables whose columns are others
    schema_check whether tables and triggers are what was recorded of them
    look_memory  what the last looks brought, which is not compared again
    preflight    what would go wrong, and the script for who may make what we may not
    removal      a lake that reads no more, and the queue behind the last one
    retention    what every reader has passed is let go: ticks, and event tables in turn
    health       what the queue holds, and for whom

    declaration, options, address          what it says of itself, and reads of its options; its addresses
    position, spelling                     places in the stream, as times and as texts
    tick, batch                            the cuts, and what lies between two of them as a query
    readers                                who reads, and how far
    loss                                   a queue that is not the one that was read
    identity, upstream                     the same server, and the same queue with our newest tick
    stream, stream_source                  ticks to bytes, for the spool
    context, decoding, slicing, decoder    bytes to change batches
    texts                                  whether a value was printed under another type than its column's
    snapshot                               PostgreSQL's, joined to ticks
    log_end                                how far it is, and by what clock
    origin                                 where a stream begins
    source                                 the contract, implemented
"""
