"""The sources: one folder for each protocol, with the same rooms in every one.

A source knows how to log in, what could go wrong before it starts, which tables there are and what
their columns mean, how to take a snapshot that joins its stream without a gap, and how to read that
stream. The pipeline calls it; each source proves the same list of behaviours.

It never knows the lake, the spool or Spark: bytes, Arrow types and positions go out, nothing comes in
but addresses and names. It changes nothing upstream but the objects that it names and removes.

    session     connecting, pinned settings, proving that it is the same server, bytes on the connection
    types       how a server's types stand in the lake
    catalog     which tables there are, what their columns mean
    ddl         whether a table changed, and what becomes of its rows
    copy        one moment, copied in ranges
    stream      everything after it, with the transactions in it found (`contract.stream`)
    decode      the bytes of the stream as changes of tables
    preflight   what would go wrong, with the statements that mend it
    source      the contract, implemented: what the stream's bytes mean, how a value is printed

The folders: `postgres`; `queue`, for PostgreSQL without logical replication; `mysql`, for MySQL and for
MariaDB, a flavour of it. Beside them stand `contract` (protocols and values: what those above may
ask of any source), `registry` (finds a source by its kind; the only importer of the folders by name), and
`shared` (code that several sources need, and that knows none of them).
"""
