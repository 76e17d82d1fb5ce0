"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut them, no replication is needed.

    application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2    (its transaction)
    receiver    ─► tick  ─ pg_current_snapshot()
                 ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

It uses PostgreSQL's sessions, catalog, types, snapshots and COPY from the folder `postgres`.

    upstream     the names of the queue's objects, and the record of them
    statements   the SQL that makes and removes the objects
    trust        which roles may own the objects of a queue, and what may be attached to them
    creation     the schema and the queue in it: made, or refused
    triggers     the triggers of one table: read, made, removed
    capture      which tables have triggers, for which lake
    removal      remove a lake, and the queue after the last lake
    health       what the queue holds, and for which lake

    preflight/   what would go wrong, and a script for a person who may make what we may not
    ddl/         the rows of tables that were altered
    copy/        PostgreSQL's snapshots, joined to ticks
    stream/      ticks to bytes, for the spool
    decode/      bytes to change batches
    catalog/     tables as PostgreSQL's catalog has them, with their triggers
    session/     addresses, and the proof that it is the same server

    declaration, options                   the names and options of this kind of source
    position, spelling                     places in the stream, as times and as texts
    tick, batch                            the cuts, and the query for what lies between two of them
    readers                                the lakes that read the queue, each with its tick
    proof                                  the proof that it is the same queue, with our newest tick
    stream_source                          the half of the contract that a receiver needs
    log_end                                how far the queue is, and by what clock
    origin                                 where a stream begins
    mirror, source                         the contract, implemented
"""
