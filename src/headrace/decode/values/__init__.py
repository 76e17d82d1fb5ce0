"""values: source text to Arrow values, a column at a time; one file per family of types.

Snapshot and stream decode every column here. Each family has a kernel that parses the text in place. A value
never makes it raise. A text that is not provably a value of the type, or that the lake's type can't hold
(infinity in a timestamp), is NULL in the column and listed as bad; its raw text goes to the lake's errors
table.

    forms      the table of families: the kernel of each form
    outcome    the result of decoding a column
    booleans · integers · floats · decimals · moments · binaries · strings · arrays      the families
"""

from headrace.decode.values.forms import FORMS, decode_column
from headrace.decode.values.outcome import DecodedColumn, raw

__all__ = ["FORMS", "DecodedColumn", "decode_column", "raw"]
