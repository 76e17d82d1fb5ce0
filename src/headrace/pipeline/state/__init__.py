"""The state of a source in the lake, and who may change it: the only room that commits.

    ledger        all that the lake knows of a source; from an epoch to its mark
    epoch         what an epoch changes, and room behind its mark; planner: the steps of its plan
    live_tables   the source's Delta tables, and what is known of their files
    records       what the catalog remembers of a source and its tables; table_state: the life of a table
    kept_files    the stream for tables that are being copied, as the catalog names it
    place         where a source is run; owner: who has its fence, and work beside it; ownership: who is alive
    lake_copy     what a copy of a lake has upstream
    config        what the user asked for; last_config: what a lake remembers of it
    choice        which tables of a source are mirrored; arrivals: those that come into the marks
    schema_check  whether tables are what was recorded, before a mark; the way back
    reach         waiting for a mark at a position
    totals        sums over all runs of a source; processes: what a run's processes take
    acknowledger  from a mark to the acknowledgement upstream
    policy        what happens after each family of errors; the only place where reactions live
    stops         the epoch by which a table stops, and the others go on
    repair        epochs that a power cut has torn

One thread at a time changes a source: that of whoever has its fence.
"""
