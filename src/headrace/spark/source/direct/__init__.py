"""Straight from a source: `readStream.format("headrace")` with a `url`, and no lake.

    stream       the query's own process on the driver: batches are offered and committed
    reception    the source's stream, received and cut into batches
    beginning    the objects upstream, and the snapshot that is the first batch
    cutting      which transactions make a batch, and their bytes in slices
    refusals     the check of a batch for what a stream cannot say
    table_watch  the looks at the tables, for what the stream does not show
    offsets      batches, as Spark's checkpoint keeps them
    state        the state folder: everything that was offered, until Spark has committed it
    removal      `headrace drop --state` and `status --state`
    rows         the executors' half: slices and pieces of the snapshot as rows

How the bytes go:

    source ──▶ receiver (a process) ──▶ spool, on the driver's disk, worth nothing
                                          │ cut, made durable, then offered
                                          ▼
                                        state folder ──▶ executors decode ──▶ the query's sink
    source ◀── acknowledged ◀── commit(end): Spark's own log has it

The stream begins before the snapshot, and the snapshot holds some of its transactions. The first batch is the
snapshot less those; all other batches are the stream. So the sum of all batches up to any of them is what the
tables held at its end.

Promises: a batch never changes once it was offered; the source forgets nothing before Spark has committed
it; every error comes at a batch's border. Must never: name a kind of source, or hold a password in what is
pickled or stored.
"""
