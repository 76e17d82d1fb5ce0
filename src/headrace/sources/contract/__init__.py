"""The contract of a source, for those above it: protocols and values, and nothing that one alone has.

    source      a kind of source: its addresses, its connections, what a check of it finds
    mirror      one connection, and what a mirror asks over it: bound once, with its objects upstream
    copying     one moment of the source, read in pieces by others; or ranges of keys, each of its own moment
    findings    what a check finds before anything is made: a wish, findings, their report
    stream      the stream, as a receiver reads it, what a read brings, and the half of a source that it needs
    decoder     from the stream's bytes to changes, and from values to the texts that the source prints
    values      what all of these speak of: declarations, tables, statements, waits, records
    errors      those that are reacted to by their class

`Json` is the source's own wherever it stands here: it is stored in the lake and handed back, and nobody
above reads it. `upstream` is such a record: which objects the source made for this mirror, or was told to
use, and in which of its lives it is. `Connection.mirror` binds to it; only the receiver's half, which another
process asks, takes it with each question. Positions are `core.position.Position`; a source makes its own of
them, and back.

A capability that some sources lack is a property that is None there (`Mirror.captures`, `CopyPlan.key_walk`,
`Source.drop` ...): who asks says what follows from it.

Sources implement this (`sources.<name>.source`), `registry` finds them; nobody above imports their folders.
"""
