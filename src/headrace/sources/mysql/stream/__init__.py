"""The stream of a MySQL or MariaDB server: from its binlog to whole transactions of the wanted tables.

    dump           the connection on which the server sends its binlog: checked, begun, read
    history        what was read last still stands in the server's log
    transactions   from events to whole transactions of the wanted tables, as the receiver takes them
    ordinary       many transactions at a time, where nothing is special about them
    gathering      the bytes and records of one read
    frontier       the position of a stream as it grows
    events         one event of a binlog: its header, kind and checksum, and the parts that count
    frames         what is written to the spool
    errors         the coded errors of a dump and of its events

What is read here is the server's log as it is: all that stands in the spool was picked by the tables that
somebody mirrors, and no statement is.
"""
