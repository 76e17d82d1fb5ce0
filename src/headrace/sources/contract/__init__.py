"""The contract of a source: the protocols and values that the pipeline uses. They name no one source.

    source      a kind of source: its addresses, its connections, what a check of it finds
    mirror      one connection, bound once to the objects upstream, and what a mirror asks over it
    copying     one moment of the source, read in pieces; or ranges of keys, each of a moment of its own
    findings    what a check finds before anything is made: a wish, findings, their report
    stream      the stream as a receiver reads it, and the half of a source that a receiver needs
    column_rules  which columns of a table may leave the source: the rules, and what is wrong with one
    hash_key    the key of the environment, for columns that leave as hashes
    decoder     from the stream's bytes to changes, and from values to the texts that the source prints
    values      the values that all of these use: declarations, tables, statements, waits, records
    errors      the errors that code reacts to by their class

A `Json` belongs to the source. The lake stores it and hands it back; the pipeline never reads it. `upstream`
is such a record. It names the objects that the source made for this mirror, or was told to use, and the life
of the source. `Connection.mirror` binds to it. The receiver's half runs in another process, so each of its
calls takes the record. Positions are `core.position.Position`; a source converts them to its own and back.

A property is None where a source lacks the capability (`Mirror.captures`, `CopyPlan.key_walk`,
`Source.drop` ...). The caller decides what follows. None is the default of each, for classes that inherit.

A source implements the contract in `sources.<name>.source`, and `registry` finds it. The pipeline never
imports a source's folder.
"""
