"""The sources: one folder for each protocol, with the same rooms in every one.

A source logs in, finds problems before it starts, and reads which tables there are and what their columns
mean. It takes a snapshot that joins its stream without a gap, and it reads that stream. The pipeline calls
it; every source proves the same list of behaviours.

A source never knows the lake, the spool or Spark. It takes addresses and names, and returns bytes, Arrow
types and positions. It changes nothing upstream but the objects that it names and removes.

    session     log in, pin settings, prove that it is the same server, move bytes over the connection
    types       how a server's types stand in the lake
    catalog     which tables there are, what their columns mean
    ddl         whether a table changed, and what becomes of its rows
    copy        one moment, copied in ranges
    stream      everything after it, with the transactions in it found (`contract.stream`)
    decode      the bytes of the stream as changes of tables
    preflight   what would go wrong, with the statements that mend it
    source      the implementation of the contract

The folders: `postgres`; `queue`, for PostgreSQL without logical replication; `mysql`, for MySQL and for
MariaDB, a flavour of it. Beside them stand `contract` (the protocols and values by which the pipeline uses
any source), `registry` (finds a source by its kind; the only importer of the folders by name), and `shared`
(code that several sources need, and that knows none of them).
"""
