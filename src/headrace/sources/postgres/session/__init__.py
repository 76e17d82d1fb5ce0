"""session: connections to a PostgreSQL server: open them, pin settings, prove the server, run statements.

    address         the address of a source and our user there; only it holds the password
    connection      connect, pin the settings by which the server prints values, refuse a pooler
    identity        the proof that two connections reached the same server and database
    statements      run a statement and return its rows; each wait has an end
    timeouts        hang up on a server that does not answer; cancel a statement
    ddl             DDL of ours, with the settings that the database's event triggers need
    refusals        the coded error of a failed login, or of a statement that the server did not run
    stream_errors   the errors that end a stream, or make a slot unfit for one
    wire            frames of the walsender, read from a connection in large reads; small frames sent back
    clock           the server's clock, read together with its log
    timeline        the forks of the server's log
    log_end         the end of the server's log

All other rooms of this source import this one. Nothing here knows a table, a slot or a publication.
"""
