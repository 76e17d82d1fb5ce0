"""stream: everything after a moment, read from the queue tick by tick.

    queue_stream   the stream: the next tick, when to take one, feedback; a batch's events
    retention      delete what every reader has passed: ticks, and the contents of event tables in turn

A stream has two connections: one asks about ticks and takes them, the other reads batches.
"""
