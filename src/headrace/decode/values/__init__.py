"""values: source text to Arrow values, a column at a time; one file per family of types.

Called for every column of a snapshot and of a stream alike. Each family has a kernel that parses the
text where it lies. It never raises over a value: a text that it can't prove to be a value of the type
(or that is one which the type can't hold, like infinity in a timestamp) is NULL in the column and
listed as bad, and its raw text goes to the lake's errors table.

    forms      the table of families: which kernel reads which type
    outcome    what decoding a column yields
    booleans · integers · floats · decimals · moments · binaries · strings · arrays      the families
"""

from headrace.decode.values.forms import FORMS, decode_column
from headrace.decode.values.outcome import DecodedColumn, raw

__all__ = ["FORMS", "DecodedColumn", "decode_column", "raw"]
