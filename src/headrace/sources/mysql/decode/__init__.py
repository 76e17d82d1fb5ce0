"""decode: the bytes of a binlog's stream as changes of tables.

    decoder   the contract's decoder: where bytes may be cut, and what they have for some tables
    changes   from frames to change batches
    context   what bytes must be told to be decoded

The kernels over whole buffers are `headrace.decode.mysql`: pure, and held against slow twins.
"""
