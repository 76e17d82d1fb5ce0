"""snapshot: one moment of the source, copied in ranges, and which transactions it holds.

    leader        holds the moment open in the driver; followers copy ranges of pages in executors
    key_range     ranges of a key instead, each of a moment of its own
    table_access  the lock on one table, and the proof that it is the one that is meant
    visibility    the snapshot of a transaction as a handoff, and whether it may be used

A copy is joined with the stream by its handoff (`headrace.core.handoff`): nothing is missed, nothing comes
twice.
"""
