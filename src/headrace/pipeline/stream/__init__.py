"""The epochs of the stream: when they are due, their transactions, and their effect on the tables.

    cadence       when a mark is due; source_clock: up to which moment of the source's clock it is complete
    batches       the transactions of the next epoch, cut into slices
    splits        new rows of a large epoch, spread over its tasks
    ddl           statements that altered tables, and the epochs by which tables follow them
    epoch         one epoch: its job, its verdicts, the records that it changes; its TRUNCATEs
    eager         work ahead on transactions that still run
    late_stream   the stream for tables that are being copied, kept in files of the lake
    recopy        keys of a copy in chunks that lack a value, copied again

This room makes epochs, and the loop publishes them. Nothing here knows how tables are copied or replaced.
"""
