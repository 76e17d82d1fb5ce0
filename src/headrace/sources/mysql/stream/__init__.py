"""The stream of a MySQL or MariaDB server: from its binlog to whole transactions of the wanted tables.

    dump           the connection on which the server sends its binlog: check it, begin it, read it
    masking        values of columns that must not leave, overwritten or hashed before a read is handed on
    history        the check that the last received transactions still stand in the server's log
    transactions   from events to whole transactions of the wanted tables, as the receiver takes them
    ordinary       many ordinary transactions at a time
    gathering      the bytes and records of one read
    frontier       the position of a stream as it grows
    events         one event of a binlog: its header, kind and checksum, and the parts that we need
    frames         the frames in the spool
    errors         the coded errors of a dump and of its events

This room reads the server's whole log. The spool gets only events of mirrored tables, and never a statement.
"""
