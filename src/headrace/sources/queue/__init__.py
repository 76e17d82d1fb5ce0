"""PostgreSQL by a queue of our own: triggers write whole rows, ticks cut the stream; no replication is
needed.

    application ─► table ─ AFTER ... FOR EACH STATEMENT ─► event_0 │ event_1 │ event_2    (its transaction)
    receiver    ─► tick  ─ pg_current_snapshot()
                 ─► batch of tick N = events visible in S(N), and not in S(N-1) ─► the spool

It uses PostgreSQL's sessions, catalog, types, snapshots and COPY from the folder `postgres`.

    upstream     the names of the queue's objects, and the record of them, made of the options
    statements   the SQL that makes and removes the objects
    trust        the roles that may own a queue's objects, and the code that may be attached to them
    creation     make the schema and the queue in it, or refuse them
    triggers     read, make and drop the triggers of one table
    capture      the tables that have triggers, for each lake
    removal      remove a lake, and the queue after the last lake
    health       the end of the queue and its clock, its size, and the lakes that hold it back

    preflight/   what would go wrong, and a script for a user who may make what we may not
    ddl/         altered tables and their older rows
    copy/        PostgreSQL's snapshots, joined to ticks
    stream/      ticks to bytes, for the spool
    decode/      bytes to change batches
    catalog/     tables in PostgreSQL's catalog, with their triggers
    session/     addresses, and the proof that it is the same server

    declaration                            the names and options of this kind of source
    position, spelling                     places in the stream, as times and as texts
    tick, batch                            the cuts, and the query for the events between two of them
    readers                                the lakes that read the queue, each with its tick
    proof                                  the proof that it is the same queue, with our newest tick
    stream_source                          the half of the contract that a receiver needs
    origin                                 the start of a stream
    mirror, source                         the contract, implemented
"""
