"""Rows of PostgreSQL as text, made by the server itself: see `headrace_testing.canonical` for the form."""

from __future__ import annotations

import io
from typing import Any

import polars as pl
import psycopg
import pyarrow as pa
import pyarrow.csv as pacsv
from psycopg import sql

from headrace.core.names import TableName
from headrace_testing.canonical import Rows, counted

Connection = psycopg.Connection[Any]

# What a session must have, so that a hostile ALTER ROLE or ALTER DATABASE cannot change how values print.
SETTINGS = {
    "datestyle": "ISO, MDY",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "lc_monetary": "C",
    "xmlbinary": "base64",
    "client_encoding": "UTF8",
    "search_path": "",
    "quote_all_identifiers": "off",
}

_INT64_MAX = 2**63 - 1
_BOOL, _BYTEA, _DATE, _TIMESTAMPS, _NUMERIC = 16, 17, 1082, (1114, 1184), 1700
_FLOATS = {700: ("float4send", 32, "int"), 701: ("float8send", 64, "bigint")}

# Of each column the type and its modifier below all domains; of a true array, those of its elements.
# A type may have elements and be no array: int2vector and oidvector print as numbers between spaces.
_COLUMNS = """
    WITH RECURSIVE domains AS (
        SELECT oid AS domain, typbasetype AS oid, typtypmod AS typmod FROM pg_type WHERE typtype = 'd'
        UNION ALL
        SELECT domain, typbasetype, typtypmod FROM domains JOIN pg_type t USING (oid) WHERE typtype = 'd'),
    bases AS (SELECT domains.* FROM domains JOIN pg_type t USING (oid) WHERE typtype <> 'd')
    SELECT attname, coalesce(under.oid, e.oid, t.oid), coalesce(under.typmod, b.typmod, atttypmod),
           e.oid IS NOT NULL
    FROM pg_attribute a LEFT JOIN bases b ON b.domain = atttypid
    JOIN pg_type t ON t.oid = coalesce(b.oid, atttypid)
    LEFT JOIN pg_type e ON e.oid = t.typelem AND e.typarray = t.oid AND t.typdelim = ','
    LEFT JOIN bases under ON under.domain = e.oid
    WHERE attrelid = (quote_ident(%s) || '.' || quote_ident(%s))::regclass
      AND attnum > 0 AND NOT attisdropped AND attgenerated = '' ORDER BY attnum
"""


_PARTITIONED = """
SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE n.nspname = %s AND c.relname = %s AND c.relkind = 'p'
"""


def pin(connection: Connection) -> None:
    """Give the session the settings under which values are compared."""
    for name, value in SETTINGS.items():
        connection.execute("SELECT set_config(%s, %s, false)", [name, value])


def source_rows(connection: Connection, table: TableName) -> Rows:
    """Read the source's rows in the transaction (or at the moment) of this connection."""
    pin(connection)
    columns = connection.execute(_COLUMNS, [table.schema, table.name]).fetchall()
    shown = [
        (_shown_array if is_array else _shown)(sql.Identifier(name), oid, typmod)
        for name, oid, typmod, is_array in columns
    ]
    names = tuple(str(row[0]) for row in columns)
    # Children by inheritance are tables of their own; partitions are their root.
    partitioned = connection.execute(_PARTITIONED, [table.schema, table.name]).fetchall()
    query = sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT (FORMAT csv)").format(
        sql.SQL(", ").join(shown),
        sql.SQL("" if partitioned else "ONLY "),
        sql.Identifier(table.schema, table.name),
    )
    with connection.cursor().copy(query) as copy:
        data = b"".join(bytes(part) for part in copy)
    return Rows(names, counted(_read_csv(data, len(names)).with_columns(n=pl.lit(1, pl.Int64))))


def _shown(value: sql.Composable, oid: int, typmod: int) -> sql.Composed:
    """The SQL expression of a value's text."""
    if oid == _BYTEA:
        shape = "encode({v}, 'hex')"
    elif oid == _DATE:
        shape = "CASE WHEN isfinite({v}) THEN ({v} - date '1970-01-01')::text END"
    elif oid in _TIMESTAMPS:
        micros = "extract(epoch FROM {v}) * 1000000"
        shape = f"CASE WHEN isfinite({{v}}) AND {micros} <= {_INT64_MAX} THEN ({micros})::bigint::text END"
    elif oid in _FLOATS:
        send, bits, integer = _FLOATS[oid]
        bit_text = f"('x' || encode({send}({{v}}), 'hex'))::bit({bits})::{integer}::text"
        shape = f"CASE WHEN {{v}} = 'NaN' THEN 'NaN' ELSE {bit_text} END"
    elif oid == _NUMERIC and _is_decimal(typmod):
        shape = "nullif({v}::text, 'NaN')"
    elif oid == _BOOL:
        shape = "{v}::text"
    else:
        # By the type's output function, as replication and COPY do; a cast to text would strip char(n).
        shape = "CASE WHEN {v} IS DISTINCT FROM NULL THEN format('%s', {v}) END"
    return sql.SQL(shape).format(v=value)


def _shown_array(value: sql.Composable, element: int, typmod: int) -> sql.Composed:
    """The SQL expression of an array's text, from the type of its elements and their modifier."""
    # unnest in FROM would take a composite apart.
    return sql.SQL(
        "CASE WHEN cardinality({v}) = 0 THEN '{{}}'"
        " WHEN array_ndims({v}) = 1 AND array_lower({v}, 1) = 1 THEN (SELECT CASE"
        " WHEN bool_and(shown IS NOT NULL OR e IS NOT DISTINCT FROM NULL) THEN '{{' || string_agg("
        "coalesce(encode(convert_to(shown, 'UTF8'), 'hex'), 'N') || ',', '' ORDER BY i) || '}}' END"
        " FROM (SELECT e, i, {shown} AS shown"
        " FROM (SELECT unnest({v}) AS e, generate_subscripts({v}, 1) AS i) AS u) AS s) END"
    ).format(v=value, shown=_shown(sql.SQL("u.e"), element, typmod))


def _is_decimal(typmod: int) -> bool:
    """Tell whether a numeric with this type modifier has a decimal type in the lake."""
    precision, scale = ((typmod - 4) >> 16) & 0xFFFF, (typmod - 4) & 0x7FF
    return typmod >= 0 and precision <= 38 and scale <= precision


def _read_csv(data: bytes, width: int) -> pl.DataFrame:
    names = [f"c{i}" for i in range(width)]
    if not data:
        return pl.DataFrame(schema=dict.fromkeys(names, pl.String))
    # Polars' own reader cannot tell NULL (nothing) from an empty text (two quotes); this one can.
    table = pacsv.read_csv(
        io.BytesIO(data),
        read_options=pacsv.ReadOptions(column_names=names),
        parse_options=pacsv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pacsv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.large_string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return pl.DataFrame(table)
