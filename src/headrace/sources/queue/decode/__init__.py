"""decode: the events of a queue as changes of tables.

    decoder     the contract's decoder: cuts bytes, and picks those of some tables
    changes     from events to change batches
    layouts     the columns and types under which a row was written, if its table was altered between ticks
    partitions  the partitions of a root: how and since when their rows become the root's
    context     the state that decoding needs besides the bytes

The kernels over whole buffers are in `headrace.decode.queue`.
"""
