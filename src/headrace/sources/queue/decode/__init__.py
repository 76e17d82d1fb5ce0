"""decode: the events of a queue as changes of tables.

    decoder     the contract's decoder: where bytes may be cut, and what they have for some tables
    changes     from events to change batches
    layouts     under which columns a row was written, where tables are altered between ticks; or which type
    partitions  what is beneath a partitioned table: how its rows become the root's, and from when on
    context     what bytes must be told to be decoded

The kernels over whole buffers are `headrace.decode.queue`: pure, and held against slow twins.
"""
