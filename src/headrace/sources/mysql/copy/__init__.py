"""copy: one moment of a MySQL or MariaDB server, which several readers see.

    plan          the moment under the contract's names, taken when its readers were begun
    measure       how big tables are, and the ranges of an index that they are cut into
    leader        the moment, taken in the driver
    locks         the read locks on the tables of a copy, what is in their way, and what keeps sessions awake
    reader        on executors: pieces of a snapshot, or chunks, as rows of the lake
    selection     the rows of a SELECT as rows of the lake: had at once, decoded when the server is done
    follower      a connection, on an executor, that sees it
    ticket        the names by which a leader and its readers meet at the server
    key_range     single keys and ranges of them, as conditions
    table_access  the proof that a table is the one that is meant

No server exports a snapshot. While nobody may write the tables, every reader opens one of its own: all show
the same rows of these tables, and `gtid_executed` says which transactions those are (`core.handoff`).
"""
