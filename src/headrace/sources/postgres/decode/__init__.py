"""decode: the bytes of a slot's stream as changes of tables.

    decoder   the contract's decoder: cuts bytes, and picks those of some tables
    changes   from bytes to change batches
    labels    the check that enum values in decoded rows are recorded labels
    context   the state that decoding needs besides the bytes

The kernels over whole buffers are in `headrace.decode.pgoutput`.
"""
