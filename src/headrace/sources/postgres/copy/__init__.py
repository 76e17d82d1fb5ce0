"""copy: one moment of the source, copied in ranges, and which transactions it holds.

    plan          what a copy waits for, and how it is joined to the stream
    measure       how big tables are, and the ranges of pages that they are cut into
    leader        the moment, held open in the driver
    reader        pieces of it as rows of the lake, read on executors
    follower      its connection, and ranges as COPY's text
    key_range     ranges of a key instead, each of a moment of its own
    copy_out      the bytes of COPY, in pieces of whole lines
    table_access  the lock on one table, and the proof that it is the one that is meant; its row filter
    visibility    the snapshot of a transaction as a handoff, and whether it may be used

A copy is joined with the stream by its handoff (`headrace.core.handoff`): nothing is missed, nothing comes
twice.
"""
