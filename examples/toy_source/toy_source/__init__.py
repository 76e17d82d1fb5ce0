"""A toy source: a SQLite file whose triggers write each change into a table.

    declaration    its kind, its addresses
    spelling       its positions: `change 42`
    source         the contract: a kind, its connections, its mirrors, its copies
    decoder        bytes of the stream to changes
    stream_source  the half that a receiver needs; it loads no Arrow

What it shows is told step by step in docs/write-a-source.md. It is exact, and no more than that: tables have
an integer key and columns of INTEGER or TEXT, and one process writes.
"""
