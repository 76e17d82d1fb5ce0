"""Who does what next: from a source and a lake to marks.

    mirror        the public entry: one process, one or several sources, one Spark
    lifecycle     one source, attempt after attempt: the loop that ties the rooms together
    opening       how an attempt begins; choosing (the first run), owning (who may run a source)
    receiver      the process that keeps the stream flowing into the spool; receive and intake: its inside
    latecomers    what the stream has for tables that are being copied, in the lake meanwhile
    roster        tables that come and go while the source is mirrored
    copying       the snapshot: leader, followers, what a lost leader costs; chunking: key ranges instead;
                  copies (what both share), underway (several at a time), copytasks (their tasks), harvest
                  (what they brought, as an epoch), retaking (when a chunk lacks a value)
    epochs        which transactions the next epoch takes, and how they are cut into stretches; sampling
    streaming     one epoch: its job, its verdicts, the records that it changes
    stretch       a task: bytes → change batches → events, by group of files
    merging       a task: the events of a group, folded into its file; multisets (no key), shadows (values
                  without a lake form), keytext, writing
    routing       which files of a table a key can lie in
    tasks         the values that travel between driver and tasks
    requesting    what a command may ask of a run, and how the run serves it; asking: the command's side
    maintaining   small files put together (compacting), marks and history let go (expiring), a sweep;
                  upkeep: when a run does it by itself
    looking       the look at the source's catalog before each mark
    ledger        what a source has in the lake; from outcomes to a plan and its mark
    acknowledging from a mark to the acknowledgement
    records       what the catalog remembers, as values; states: the life of a table
    policy        what happens after each family of errors; the only place where reactions live
    config        what the user asked for, parsed once; remembered: what a lake knows of it
    reporting     what a run tells the world; dropping: taking back what was made upstream

Called by the command line and by `headrace.mirror`. Nothing here decodes bytes, knows the SQL of a server
beyond the look, or touches Delta's log: those are the rooms below. A row never passes through Spark's
JVM as a row: it carries opaque blobs between functions of `stretch` and `merging`.
"""
