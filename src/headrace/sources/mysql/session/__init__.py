"""session: how a connection to a MySQL or MariaDB server is made, pinned, proved, asked and bounded.

    address      where a server is, who we are there, whom we tell the password; alone it holds that
    connection   connect, pin the settings by which the server prints values, refuse a proxy
    login        PyMySQL says who we are, and never tells a stranger the password
    identity     the proof that two connections reached the same server
    log_end      how far the server is, as a position of ours
    clock        the server's clock, held against its binlog
    statements   one question, one answer; each wait has an end, at the server too
    result_set   the answer to a statement: columns, rows one by one or in blocks of their raw bytes
    packets      the socket after the login: whole packets in, commands out, each wait with an end
    refusals     the coded error of a login that failed, or of a statement that the server did not run

All other rooms of this source stand on this one. Nothing here knows a table.
"""
