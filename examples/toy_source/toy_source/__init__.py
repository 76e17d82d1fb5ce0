"""A toy source: a SQLite file whose triggers write each change into a table.

    declaration    its kind, its addresses
    spelling       its positions: `change 42`
    source         the contract: a kind, its connections, its mirrors, its copies
    decoder        bytes of the stream to changes
    stream_source  the half that a receiver needs; it loads no Arrow

docs/write-a-source.md explains it step by step. It is exact, and no more than that: tables have a key and
columns of INTEGER or TEXT. Who writes sets `PRAGMA recursive_triggers`, or never uses INSERT OR REPLACE: else
SQLite fires no trigger for the row that is replaced. test_conformance.py runs the list that every source
passes.
"""
