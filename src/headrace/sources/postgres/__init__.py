"""PostgreSQL 15 to 18, by logical replication with pgoutput.

    preflight/     what would go wrong, with the statements that mend it, before anything is made
    ddl/           whether tables are what was recorded, before each mark
    copy/          a leader holds one moment open, followers copy ranges of it as COPY text
    stream/        everything after it: raw bytes, and the transactions in them
    decode/        bytes of the stream to changes of tables
    catalog/       tables and locks, as the server's catalog has them
    types/         how values stand in the lake
    session/       a connection: pinned, proved, asked, bounded; the walsender's protocol on it

    source         the contract of a source
    stream_source  the half of the contract that a receiver needs
    mirror         the contract, on one connection
    capture        which tables the publication holds, and whether it sends what it should of each
    objects        publication and slot: their order, names, removal; that order proves that nothing is lost
    upstream       the record of both, and of the life of the server that they are of
    publication    our publication, made and altered; what the user's sends in part
    slot           our slot, made, watched and dropped
    writers        W, the transactions that a snapshot has to show
    declaration    how PostgreSQL introduces itself: its addresses, its options
    spelling, position  a position in the server's log, and how the server writes it

The source stands on top, then capture over preflight; copy and stream do not know each other.

Everything runs with the rights of an ordinary user: LOGIN, REPLICATION, SELECT on the tables, and
for a publication of our own also CREATE on the database and ownership of the tables.
"""
