"""The contract of a source, for those above it: protocols and values, and nothing that one alone has.

    declaration what a kind of source says of itself before it is loaded, with its options
    source      a kind of source: its addresses, its connections, what a check of it finds
    mirror      one connection, and what a mirror asks over it: bound once, with its objects upstream
    copying     one moment of the source, read in pieces by others; or ranges of keys, each of its own moment
    tables      what a table is, and what a look at it finds
    findings    what a check finds before anything is made: a wish, findings, their report
    stream      the stream, as a receiver reads it, and the half of a source that it needs
    arrival     what a read of the stream brings
    statements  what a stream says of tables otherwise than by rows
    waiting     how a wait for others is borne
    errors      those that are reacted to by their class
    record      `Json`
    decoder     from the stream's bytes to changes, and from values to the texts that the source prints

`Json` is the source's own wherever it stands here: it is stored in the lake and handed back, and nobody
above reads it. `upstream` is such a record: which objects the source made for this mirror, or was told to
use, and in which of its lives it is. Positions are `core.position.Position`; a source makes its own of them,
and back.

Sources implement this (`sources.<name>.source`), `registry` finds them; nobody above imports their folders.
"""
