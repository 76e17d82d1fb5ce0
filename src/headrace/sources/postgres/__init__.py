"""PostgreSQL 15 to 18, by logical replication with pgoutput.

    session ─► preflight ─► catalog + types ─► upstream ─────────► snapshot ──────────► stream
    pinned,    findings     TableLook,         publication,        leader, ranges,      raw bytes,
    proved     with SQL     TableSchema        slot, W             COPY text            positions

    transactions, running   which transactions a read of the stream holds; those that come while they run
    source                  the contract of a source, over these three:
    context, slicing        what bytes must be told; where they may be cut, and what they have for some tables
    decoding                from bytes to changes

The order from `upstream` on is the proof that nothing is lost: see there. `refusals` gives the coded
errors of logins and statements, `protocol` and `wire` the bytes of a walsender.

Everything runs with the rights of an ordinary user: LOGIN, REPLICATION, SELECT on the tables, and
for a publication of our own also CREATE on the database and ownership of the tables.
"""
