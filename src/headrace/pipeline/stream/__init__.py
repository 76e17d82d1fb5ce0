"""The stream's epochs: what is taken of it, when, and what the tables become by it.

    cadence       when a mark is due; source_clock: up to which moment of the source's clock it is complete
    batches       which transactions the next epoch takes, and how they are cut into slices
    cut_places    where in the stream a mark may be made
    splits        new rows of a large epoch, spread over its tasks
    ddl           statements that altered tables, and the epochs by which tables follow them
    epoch         one epoch: its job, its verdicts, the records that it changes; its TRUNCATEs
    eager         work ahead on transactions that still run
    late_stream   the stream for tables that are being copied, in files of the lake meanwhile
    recopy        keys of a copy in chunks that lack a value, copied again

An epoch is made here and published by the loop. Nothing here knows how tables are copied or replaced.
"""
