"""MySQL and MariaDB by their binlogs.

    flavour            the two kinds of server, their releases, and all that they differ in
    session/           connections: made, pinned, proved, asked and bounded
    protocol/          the packets of a connection after its login, read by ourselves
    gtid_set           the transactions that a MySQL server has executed: a set of names, only partly ordered
    mariadb_position   the place that a MariaDB server has reached: the last transaction of each domain
    options            those that a mirror has beside those of every source
    table_number       the integer by which records name a table
    steps              what an ALTER TABLE of a closed form did to columns
    catalog/           tables as information_schema describes them
    preflight/         everything that would go wrong later, found before anything is made
    stream_source      the half of the contract that a receiver needs
    declaration        the two kinds as they introduce themselves
    upstream           the record of what is followed
    origin             where a stream begins, and whether the server still is as one needs it
    successor          another server in the place of the one that was followed
    health             how long the server keeps its log
    tables             the contract's tables, over these:
      capture            the tables that may be followed
      schema_check       whether they are what was recorded of them
    snapshot/          one moment, seen by several readers under table locks
    stream/            from the binlog to whole transactions of the wanted tables
    decoder            the contract's decoder, over these:
      slicing            where bytes may be cut, and what they have for some tables
      decoding           from frames to changes
      layouts            whether the stream describes a table as it was recorded
      known_statements   the statements that a table was followed through, in its record
      context            what bytes must be told to be decoded
      values             values of the lake as text, and back
    binlog_position    the place that a stream has reached: what it has brought, and our times of that
    spelling           its spelling, for readers of a lake

It knows no source beside it.
"""
