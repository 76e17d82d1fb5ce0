"""decode: the bytes of a slot's stream as changes of tables.

    decoder   the contract's decoder: where bytes may be cut, and what they have for some tables
    changes   from bytes to change batches
    labels    whether the labels of enums in rows of a stream are labels still
    context   what bytes must be told to be decoded

The kernels over whole buffers are `headrace.decode.pgoutput`: pure, and held against slow twins.
"""
