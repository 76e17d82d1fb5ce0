"""copy: PostgreSQL's own snapshot, joined to the ticks of a queue.

    plan      what a copy waits for (nothing), its snapshot, or the walk along keys; writers that are let end
    reader    pieces of it as rows of the lake; a range of keys has a tick of its own

Which transactions a snapshot holds is told by xid, row by row. From the first tick on that was taken after it
a copy is exact: that tick shows all that the snapshot shows.
"""
