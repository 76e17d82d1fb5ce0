"""copy: one moment of the source, copied in ranges, and which transactions it holds.

    plan          what a copy waits for, and how it is joined to the stream
    measure       how big tables are, and the ranges of pages that they are cut into
    leader        the moment, held open in the driver
    reader        pieces as rows of the lake, read on executors
    follower      the connection of a reader, and ranges of pages as COPY's text
    key_range     key ranges instead, each read at a moment of its own
    copy_out      the bytes of COPY, in pieces of whole lines
    table_access  the lock on one table, the proof that it is the right one, and its row filter
    visibility    the snapshot of a transaction as a handoff, and the test that it may be used

A copy is joined with the stream by its handoff (`headrace.core.handoff`): no change is missed, and none is
applied twice.
"""
