"""MySQL and MariaDB by their binlogs.

    preflight/         everything that would go wrong later, found before anything is made
    copy/              one moment, seen by several readers under table locks
    decode/            bytes of the stream to changes of tables
    stream/            from the binlog to whole transactions of the wanted tables
    ddl/               statements of the log and looks at the catalog, and what follows for rows
    catalog/           tables as information_schema describes them
    types/             how values stand in the lake, and how they are printed
    session/           connections: made, pinned, proved, asked and bounded

    stream_source      the half of the contract that a receiver needs
    mirror             the contract, on one connection
    capture            the tables that may be followed
    origin             where a stream begins, and whether the server still is as one needs it
    successor          another server in the place of the one that was followed
    upstream           the record of what is followed
    flavour            the two kinds of server, their releases, and all that they differ in
    position           the place that a stream has reached: what it has brought, and our times of that
    gtid_set           the transactions that a MySQL server has executed: a set of names, only partly ordered
    mariadb_position   the place that a MariaDB server has reached: the last transaction of each domain
    spelling           how positions are spelled, for readers of a lake
    declaration        the two kinds as they introduce themselves, and their options

It knows no source beside it.
"""
