"""snapshot: one moment of a MySQL or MariaDB server, which several readers see.

    locks      the read locks on the tables of a copy, and what is in their way
    ticket     the names by which a leader and its readers meet at the server
    leader     the moment, taken in the driver
    follower   a connection, on an executor, that sees it

No server exports a snapshot. While nobody may write the tables, every reader opens one of its own: all show
the same rows of these tables, and `gtid_executed` says which transactions those are (`core.handoff`).
"""
