"""session: connections to a MySQL or MariaDB server: open them, pin settings, prove the server, run
statements.

    address      the address of a server, our user, and the rules for the password, which only it holds
    connection   connect, pin the settings by which the server prints values, refuse a proxy
    login        log in by PyMySQL, and never send a stranger the password
    identity     the proof that two connections reached the same server
    log_end      the end of the server's log, as our position
    clock        the server's clock, read together with its binlog
    statements   run a statement and return its rows; each wait has an end, at the server too
    result_set   the answer to a statement: columns, then rows one by one or in blocks of raw bytes
    packets      the socket after the login: whole packets in, commands out, each wait with an end
    refusals     the coded error of a failed login, or of a statement that the server did not run

All other rooms of this source import this one. Nothing here knows a table.
"""
