"""session: how a connection to a PostgreSQL server is made, pinned, proved, asked and bounded.

    address         where a source is and who we are there; alone it holds the password
    connection      connect, pin the settings by which the server prints values, refuse a pooler
    identity        the proof that two connections reached the same server and database
    statements      one question, one answer; each wait has an end
    timeouts        hang up on a server that does not answer; have it end what it does for us
    ddl             DDL of ours, with the settings that the database's event triggers go by
    refusals        the coded error of a login that failed, or of a statement that the server did not run
    stream_errors   what ends a stream, or makes a slot unfit for one
    wire            the walsender's frames off a connection in large reads, and a few bytes back
    clock           the server's clock, held against its log
    log_end         how far the server's log goes

All other rooms of this source stand on this one. Nothing here knows a table, a slot or a publication.
"""
