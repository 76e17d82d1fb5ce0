"""copy: one moment of a MySQL or MariaDB server, which several readers see.

    plan          the moment under the contract's names; it is taken after its readers were started
    measure       how big tables are, and the ranges of an index that they are cut into
    leader        the moment, taken in the driver
    locks         the read locks on the tables of a copy, what delays them, and the keeper of sessions
    reader        on executors: pieces of a snapshot, or chunks, as rows of the lake
    selection     the rows of a SELECT as rows of the lake: read at once, decoded after the server is done
    follower      a connection on an executor that sees the moment
    ticket        the names of the locks by which a leader and its readers meet at the server
    key_range     single keys and key ranges, as conditions
    table_access  the proof that a table is the right one

No MySQL server exports a snapshot. So while nobody can write the tables, every reader opens a snapshot of its
own. All of them show the same rows of these tables, and `gtid_executed` names the transactions that they hold
(`core.handoff`).
"""
