"""The pipeline, from a source and a lake to marks: who does what next.

A room is named for what it does to the data, and its floor says where it runs and what it may touch. Imports
only go down, and rooms on one floor do not know each other:

    run            a run in its order: the public entry, a source, an attempt, a turn          ┐
    loop           the work of a turn, and all that an attempt holds open                      │ the
    receiving      the receiver of the stream, and the work on what comes                      │ driver's
    completion     the end of a run that only catches up                                       │ thread
    following      tables whose shape changed, mirrored again in their new shape               │
    recovery       a lost place in the stream; another server in place of the old one          │
    withdrawal     tables that may not stay in our publication                                 │
    status_report  the status record of a run                                                  │
    totals         its sums over all runs of a source                                          │
    processes      memory and CPU of a run's processes                                         │
    loop_watch     a thread that watches the loop                                              │
    lake_size      how large a source's part of the lake is                                    │
    first_run      the choice of objects upstream, and the first records of a source           ┘
    commands/  verify/                   beside a run, or instead of one
    copy/  resync/  maintain/  stream/   make epochs, and publish none
    state/                               the state of a source; the only room that commits
    tasks/                               Spark's tasks: a pickled value in and out

Nothing here decodes bytes, knows the SQL of a server beyond the look, or touches Delta's log: those are the
rooms below. A row never passes through Spark's JVM as a row: it carries opaque blobs between functions of
`tasks.decode` and `tasks.merge`.
"""
