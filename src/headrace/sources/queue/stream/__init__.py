"""stream: everything after a moment, read from the queue tick by tick.

    queue_stream   the stream: which tick is next, when one is taken, what was let go; a batch's events
    retention      what every reader has passed is let go: ticks, and event tables in turn

Two connections: one asks about ticks and takes them, the other reads batches.
"""
