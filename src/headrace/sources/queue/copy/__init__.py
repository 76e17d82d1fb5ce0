"""copy: PostgreSQL's own snapshot, joined to the ticks of a queue.

    plan      a copy's snapshot or its walk along keys, and the writers that it waits for, if any
    reader    pieces as rows of the lake; a key range has a tick of its own

The handoff is by xid, row by row. A copy is exact from the first tick that was taken after its snapshot: that
tick shows all that the snapshot shows.
"""
