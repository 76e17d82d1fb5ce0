"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut them, no replication is needed.

    application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2    (its transaction)
    receiver    ─► tick  ─ pg_current_snapshot()
                 ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

What is PostgreSQL's own it has from the folder beside it: sessions, catalog, types, snapshots, COPY.

    upstream     the names of what is made, and the record of it
    statements   the SQL that makes and removes it
    trust        whose objects a queue may consist of, and what may hang on them
    creation     the schema and the queue in it: made, or refused
    triggers     the triggers of one table: read, made, taken away
    capture      which tables have triggers, for which lake
    removal      a lake that reads no more, and the queue behind the last one
    health       what the queue holds, and for whom

    preflight/   what would go wrong, and the script for who may make what we may not
    ddl/         what becomes of rows of tables that were altered
    copy/        PostgreSQL's snapshots, joined to ticks
    stream/      ticks to bytes, for the spool
    decode/      bytes to change batches
    catalog/     tables as PostgreSQL's catalog has them, with their triggers
    session/     addresses, and the same server

    declaration, options                   what it says of itself, and reads of its options
    position, spelling                     places in the stream, as times and as texts
    tick, batch                            the cuts, and what lies between two of them as a query
    readers                                who reads, and how far
    proof                                  the same queue with our newest tick
    stream_source                          the half of the contract that a receiver needs
    log_end                                how far it is, and by what clock
    origin                                 where a stream begins
    mirror, source                         the contract, implemented
"""
