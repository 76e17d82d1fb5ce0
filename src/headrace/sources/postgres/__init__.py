"""PostgreSQL 15 to 18, by logical replication with pgoutput.

    preflight/     what would go wrong, with the statements that mend it, before anything is made
    ddl/           before each mark: compare tables with their records
    copy/          a leader holds one moment open, followers copy ranges of it as COPY text
    stream/        everything after that moment: raw bytes, and the transactions in them
    decode/        bytes of the stream to changes of tables
    catalog/       tables and locks in the server's catalog
    types/         the lake types of PostgreSQL's types
    session/       a connection: pinned settings, proof, queries, limits; the walsender protocol

    source         the contract of a source
    stream_source  the half of the contract that a receiver needs
    mirror         the contract, on one connection
    capture        which tables the publication holds, and whether it sends all that it should of each
    objects        publication and slot: their order (which proves that nothing is lost), names, removal
    successor      a promoted standby in place of the server that was followed
    upstream       the record of publication, slot, and the life of their server
    publication    our publication, made and altered; tables that the user's sends in part
    slot           our slot, made, watched and dropped
    writers        W, the transactions that a snapshot must show
    declaration    the names, addresses and options of this kind of source
    spelling, position  a position in the server's log, and how the server writes it

`source` is the top layer, then capture over preflight. Copy and stream do not import each other.

An ordinary user suffices: LOGIN, REPLICATION, SELECT on the tables. For a publication of our own the user
also needs CREATE on the database and ownership of the tables.
"""
