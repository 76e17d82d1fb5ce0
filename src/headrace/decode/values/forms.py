"""The forms: each names a way to turn a source's text into a value.

A form is part of a table's record in the lake (`core.schema.Column.form`), so its name must always keep its
meaning. The sources choose form and Arrow type together:

    form          Arrow type                       text
    bool          bool                             t  f
    int           int16, int32, int64              -42
    float         float32, float64                 1e-45  NaN  -Infinity
    decimal       decimal128(p, s)                 -12.50
    text          string                           anything that is UTF-8
    char          string                           the same, without the spaces at its end; to be hashed
    bytea         binary                           \\x00ff
    date          date32                           2016-11-04  0044-03-15 BC
    timestamp     timestamp(us)                    2016-11-04 13:51:30.123456
    timestamptz   timestamp(us, UTC)               2016-11-04 13:51:30.123456+00
    array(form)   list of the form's type          {1,NULL,3}
    hashed(form)  string                           32 hexadecimal digits (`core.hashing`)
"""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.hashing import is_hashed_form
from headrace.decode.text import TextColumn
from headrace.decode.values import (
    arrays,
    binaries,
    booleans,
    decimals,
    floats,
    integers,
    moments,
    strings,
)
from headrace.decode.values.outcome import DecodedColumn

FORMS: dict[str, arrays.Decoder] = {
    "bool": booleans.decode,
    "int": integers.decode,
    "float": floats.decode,
    "decimal": decimals.decode,
    "text": strings.decode,
    "bytea": binaries.decode,
    "date": moments.decode_date,
    "timestamp": moments.decode_timestamp,
    "timestamptz": moments.decode_timestamptz,
}
_ARRAY = "array("


def decode_column(column: TextColumn, form: str, type: pa.DataType) -> DecodedColumn:
    """Decode a column of this form into its Arrow type."""
    if is_hashed_form(form):
        return strings.decode_hash(column)
    if form == "char":  # of no array: only what is hashed has it
        return strings.decode_padded(column, type)
    return _decoder(form)(column, type)


def _decoder(form: str) -> arrays.Decoder:
    if form.startswith(_ARRAY) and form.endswith(")"):
        return partial(arrays.decode, element=_decoder(form[len(_ARRAY) : -1]))
    if form in FORMS:
        return FORMS[form]
    raise Misconfigured(
        "FORM_UNKNOWN",
        f'a column of the lake has the form "{form}", which this version does not know',
        hint="use the version of headrace that wrote the lake, or a newer one",
    )
