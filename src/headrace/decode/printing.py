"""Values of the lake as the source prints them: the inverse of `values`.

    decode_column(printed(array))  =  array          and, for every text that a server prints,
    printed(decode_column(text))   =  text

The text is PostgreSQL's under the settings that we pin (docs/types.md). It prints whole arrays at a time.
Arrow finds the digits of floating-point numbers: the fewest that mean the number, as on the server. This
module only places the decimal point. NULL stays NULL: this module does not know the texts of values that a
type cannot hold.

    boolean      t f                       real, double   0.1  1e+20  -0  NaN  Infinity
    bytea        \\x00ff                    date           0044-03-15 BC
    timestamptz  2016-11-04 13:51:30.1+00  arrays         {1,NULL,"a b"}

Readers that show rows as their source prints them call it through `Decoder.print_values`; the command line
prints the rows of any query with it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import contiguous

_DAY = 86_400_000_000
_ZEROS = "0" * 40
# From this power of ten on the server writes an exponent: so many digits the type keeps for certain.
_FIXED_BELOW = {pa.float32(): 6, pa.float64(): 15}
_SPECIAL = {"nan": "NaN", "-nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
_PLAIN_ELEMENT = r'^[^{}",\\ \t\n\r\v\f]+$'


def print_values(array: Any) -> pa.Array:
    """The values as text."""
    values = contiguous(array)
    if pa.types.is_list(values.type):
        return _lists(values)
    for matches, spell in _KINDS:
        if matches(values.type):
            return contiguous(spell(values))
    raise TypeError(f"values of type {values.type} have no text of a source")


def _plain(values: Any) -> Any:
    return values.cast(pa.string())


def _booleans(values: Any) -> Any:
    return pc.if_else(values, "t", "f")


def _decimals(values: Any) -> Any:
    # Arrow would print a small decimal with an exponent.
    return pl.Series(values=values).cast(pl.String).to_arrow().cast(pa.string())


def _bytes(values: Any) -> Any:
    hexed = pl.Series(values=values.cast(pa.large_binary())).bin.encode("hex")
    return (pl.lit("\\x") + pl.col("b")).pipe(lambda text: _column(text, b=hexed))


def _column(expression: pl.Expr, **columns: pl.Series) -> Any:
    return pl.DataFrame(columns).select(expression.alias("text"))["text"].to_arrow().cast(pa.string())


# ── floating-point numbers ──────────────────────────────────────────────────────────────────────────


def _floats(values: Any) -> Any:
    text = pl.Series(values=values.cast(pa.string()))
    parts = pl.col("t").str.extract_groups(r"^(-?)(\d+)(?:\.(\d+))?(?:e([+-]?\d+))?$")
    sign, whole, rest, power = (parts.struct.field(str(i)).fill_null("") for i in (1, 2, 3, 4))
    frame = pl.DataFrame({"t": text}).with_columns(
        sign=sign,
        digits=pl.concat_str(whole, rest),
        exponent=whole.str.len_bytes().cast(pl.Int64) - 1 + power.cast(pl.Int64, strict=False).fill_null(0),
    )
    bare = pl.col("digits").str.strip_chars_start("0")
    leading = pl.col("digits").str.len_bytes().cast(pl.Int64) - bare.str.len_bytes().cast(pl.Int64)
    frame = frame.with_columns(digits=bare.str.strip_chars_end("0"), exponent=pl.col("exponent") - leading)
    return frame.select(_number(_FIXED_BELOW[values.type]).alias("text"))["text"].to_arrow().cast(pa.string())


def _number(fixed_below: int) -> pl.Expr:
    digits, exponent = pl.col("digits"), pl.col("exponent")
    length = digits.str.len_bytes().cast(pl.Int64)
    zeros = pl.lit(_ZEROS)
    head, tail = digits.str.slice(0, 1), digits.str.slice(1)
    power = pl.concat_str(
        pl.when(exponent < 0).then(pl.lit("e-")).otherwise(pl.lit("e+")),
        exponent.abs().cast(pl.String).str.zfill(2),
    )
    pointed = pl.when(length > 1).then(pl.concat_str(head, pl.lit("."), tail)).otherwise(head)
    shape = (
        pl.when(length == 0)
        .then(pl.lit("0"))
        .when((exponent < -4) | (exponent >= fixed_below))
        .then(pl.concat_str(pointed, power))
        .when(exponent < 0)
        .then(pl.concat_str(pl.lit("0."), zeros.str.slice(0, -exponent - 1), digits))
        .when(exponent >= length - 1)
        .then(pl.concat_str(digits, zeros.str.slice(0, exponent - length + 1)))
        .otherwise(
            pl.concat_str(digits.str.slice(0, exponent + 1), pl.lit("."), digits.str.slice(exponent + 1))
        )
    )
    text = pl.col("t")
    return (
        pl.when(text.is_null())
        .then(None)
        .when(text.is_in(list(_SPECIAL)))
        .then(text.replace(_SPECIAL))
        .otherwise(pl.concat_str(pl.col("sign"), shape))
    )


# ── dates and timestamps ────────────────────────────────────────────────────────────────────────────


def _dates(values: Any) -> Any:
    days = pc.fill_null(values.cast(pa.int32()), 0).to_numpy().astype(np.int64)
    shown, era = _calendar(days)
    return _where_valid(values, _column(pl.concat_str("d", "e"), d=shown, e=era))


def _timestamps(values: Any) -> Any:
    micros = pc.fill_null(values.cast(pa.timestamp("us", tz=values.type.tz)).cast(pa.int64()), 0).to_numpy()
    days, rest = np.divmod(micros, _DAY)
    shown, era = _calendar(days)
    seconds, fraction = np.divmod(rest, 1_000_000)
    clock = [_pad(part, 2) for part in (seconds // 3600, seconds // 60 % 60, seconds % 60)]
    point = pl.concat_str(pl.lit("."), pl.col("f").str.strip_chars_end("0"))
    text = pl.concat_str(
        "d",
        pl.lit(" "),
        pl.concat_str("h", "m", "s", separator=":"),
        pl.when(pl.col("f") == "000000").then(pl.lit("")).otherwise(point),
        pl.lit("+00" if values.type.tz else ""),
        "e",
    )
    h, m, s = clock
    return _where_valid(values, _column(text, d=shown, h=h, m=m, s=s, f=_pad(fraction, 6), e=era))


def _calendar(days: Any) -> tuple[pl.Series, pl.Series]:
    """`YYYY-MM-DD` for days since 1970, and the era, which comes at the very end of the text."""
    moments = days.astype("datetime64[D]")
    months = moments.astype("datetime64[M]")
    year = moments.astype("datetime64[Y]").astype(np.int64) + 1970
    # The year before year 1 is 1 BC.
    before_christ = year < 1
    parts = [
        _pad(np.where(before_christ, 1 - year, year), 4),
        _pad(months.astype(np.int64) % 12 + 1, 2),
        _pad((moments - months).astype(np.int64) + 1, 2),
    ]
    y, m, d = parts
    joined = pl.DataFrame({"y": y, "m": m, "d": d}).select(pl.concat_str("y", "m", "d", separator="-"))
    return joined.to_series(), pl.Series(np.where(before_christ, " BC", ""), dtype=pl.String)


def _pad(numbers: Any, width: int) -> pl.Series:
    return pl.Series(numbers).cast(pl.String).str.zfill(width)


def _where_valid(values: Any, texts: Any) -> Any:
    return pc.if_else(values.is_valid(), contiguous(texts), pa.scalar(None, pa.string()))


# ── arrays ──────────────────────────────────────────────────────────────────────────────────────────


def _lists(values: Any) -> pa.Array:
    elements = pl.Series(values=print_values(values.flatten()), dtype=pl.String)
    quoted = pl.concat_str(
        pl.lit('"'),
        pl.col("e").str.replace_all("\\", "\\\\", literal=True).str.replace_all('"', '\\"', literal=True),
        pl.lit('"'),
    )
    bare = pl.col("e").str.contains(_PLAIN_ELEMENT) & (pl.col("e").str.to_uppercase() != "NULL")
    shown = pl.when(pl.col("e").is_null()).then(pl.lit("NULL")).when(bare).then("e").otherwise(quoted)
    texts = _column(shown, e=elements)
    lengths = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
    joined = pc.binary_join(pa.ListArray.from_arrays(offsets, contiguous(texts)), ",")
    braced = pc.binary_join_element_wise("{", joined, "}", "")
    return contiguous(_where_valid(values, braced))


_KINDS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any], Any]], ...] = (
    (pa.types.is_boolean, _booleans),
    (pa.types.is_integer, _plain),
    (pa.types.is_floating, _floats),
    (pa.types.is_decimal, _decimals),
    (pa.types.is_string, _plain),
    (pa.types.is_large_string, _plain),
    (pa.types.is_binary, _bytes),
    (pa.types.is_large_binary, _bytes),
    (pa.types.is_date, _dates),
    (pa.types.is_timestamp, _timestamps),
)
