"""Who does what next: from a source and a lake to marks.

    config      what the user asked for, parsed once at the rim
    records     what the catalog remembers of a source and its tables, as values
    states      the life of a table, as a transition table
    policy      what happens after each family of errors; the only place where reactions live
    receiver    the process that keeps the stream flowing into the spool (receive: its inside)
    copying     the snapshot: ranges, follower tasks, progress, what a lost leader costs
    epochs      which transactions the next epoch takes, and how they are cut into stretches
    stretch     a task: a stretch of the spool → change batches → events per group of files
    merging     a task: the events of one group, folded into its file → new files and history
    routing     which files of a table a key can lie in
    looking     the look at the source's catalog before each mark
    writing     from finished tasks to a plan, its mark, and the acknowledgement
    lifecycle   one source from connection to SIGTERM; the loop that ties the above together
    mirror      the public entry: one process, one or several sources

Called by the command line and by `headrace.mirror`. Nothing here decodes bytes, knows SQL of a
server or touches Delta's log: those are the rooms below. A row never passes through the driver's
JVM: Spark carries opaque blobs between functions of `stretch` and `merging`.
"""
