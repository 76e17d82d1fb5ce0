"""MySQL and MariaDB by their binlogs.

    preflight/         find everything that would go wrong later, before anything is made
    copy/              one moment, seen by several readers under table locks
    decode/            bytes of the stream to changes of tables
    stream/            from the binlog to whole transactions of the wanted tables
    ddl/               statements of the log and looks at the catalog, and their effect on rows
    catalog/           tables as information_schema describes them
    types/             the lake types of the servers' types, and the printing of values
    session/           connections: open them, pin settings, prove the server, run statements

    stream_source      the half of the contract that a receiver needs
    mirror             the contract, on one connection
    origin             the start of a stream, and the check that the server still has the settings for one
    successor          another server in place of the one that was followed: may it go on from there?
    upstream           the record of the mirror
    flavour            the two kinds of server, their releases, and all their differences
    position           the place that a stream has reached: the transactions that it brought, and our times
    gtid_set           the transactions that a MySQL server has executed: a set of names, only partly ordered
    mariadb_position   the place that a MariaDB server has reached: the last transaction of each domain
    spelling           the spelling of positions, for readers of a lake
    declaration        the declarations of the two kinds, and their options

It imports no other source.
"""
