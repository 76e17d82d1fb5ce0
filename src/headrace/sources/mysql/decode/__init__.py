"""decode: the bytes of a binlog's stream as changes of tables.

    decoder   the contract's decoder: cuts bytes, and picks those of some tables
    changes   from frames to change batches
    context   the state that decoding needs besides the bytes

The kernels over whole buffers are in `headrace.decode.mysql`.
"""
