"""session: how a connection to a PostgreSQL server is made, pinned, proved, asked and bounded.

    connection      connect, pin the settings by which the server prints values, refuse a pooler
    refusals        the coded error of a login that failed, or of a statement that the server did not run
    timeouts        hang up on a server that does not answer
    minor_releases  releases whose stream must not be trusted in some way
    clock           the server's clock, held against its log

All other rooms of this source stand on this one. Nothing here knows a table, a slot or a publication.
"""
