"""Chunks: key ranges of a table, each read in a short transaction of its own.

    driver     next_bound      the first key after so many rows, by a walk along the key's index
    executors  chunk           BEGIN REPEATABLE READ; lock as a reader; the snapshot is the handoff;
                               COPY ... WHERE key in range

Nothing is held open between two chunks. The ranges are fixed once, by keys, so changes between two chunks do
no harm. A chunk reads the rows whose keys lie in its range at that moment, and `core.chunks` decides for each
change whether its chunk holds it.

We must find the chunk of a streamed key without asking the server. So chunks need keys whose order we can
reproduce: integers, dates, timestamps, uuid, bytea, and text that is compared byte by byte. For any other
table `disorder` says why it must be copied in one snapshot.

Sequential scans are switched off: with stale statistics the planner might read the whole table for every
chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pyarrow as pa

from headrace.core.chunks import Bound, KeySpan
from headrace.core.errors import ShapeChanged
from headrace.core.handoff import ByXid
from headrace.core.keycode import keycode
from headrace.core.names import TableName, quote_identifier
from headrace.core.schema import TableSchema
from headrace.decode import copyrows
from headrace.sources.contract.copying import Key, KeyRange
from headrace.sources.contract.errors import StepTooLong
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.definitions import read_entries
from headrace.sources.postgres.catalog.table_def import TableEntry, is_root, schema_of
from headrace.sources.postgres.copy.copy_out import Stream, stream_copy
from headrace.sources.postgres.copy.table_access import (
    column_numbers,
    confirm,
    evaluating,
    lock,
    prove,
    prove_columns,
    prove_same_leaves,
    prove_tree,
    reading,
    row_filter,
)
from headrace.sources.postgres.copy.visibility import BEGIN, see
from headrace.sources.postgres.session.statements import Session, ask, ask_within, query
from headrace.sources.shared.refusals import StatementCancelled

# int2, int4, int8, date, timestamp, timestamptz, uuid, bytea.
_ORDERED = frozenset((21, 23, 20, 1082, 1114, 1184, 2950, 17))
_TEXTS = frozenset((25, 1043))  # text, varchar

BOUND_SECONDS = 300.0  # for the walk to the end of one chunk

_BY_BYTES = """
SELECT a.attrelid::bigint, a.attname
  FROM pg_attribute a JOIN pg_collation c ON c.oid = a.attcollation,
       pg_database d
 WHERE d.datname = current_database() AND a.attrelid = ANY (%s::oid[]) AND a.attnum > 0
   AND pg_encoding_to_char(d.encoding) = 'UTF8'
   -- The provider "b" (17 and later) compares code points, which in UTF-8 is to compare bytes.
   AND CASE c.collprovider WHEN 'd' THEN d.datlocprovider = 'b'
                                         OR (d.datlocprovider = 'c' AND d.datcollate IN ('C', 'POSIX'))
                           WHEN 'c' THEN c.collcollate IN ('C', 'POSIX')
                           ELSE c.collprovider = 'b' END
"""


def disorder(connection: Session, entries: Sequence[TableEntry]) -> dict[TableName, str]:
    """Find the tables that can't be copied in chunks, each with the reason."""
    rows = query(connection, _BY_BYTES, [[entry.oid for entry in entries]])
    by_bytes = frozenset((oid, name) for oid, name in rows)
    reasons = {entry.name: _disorder(entry, by_bytes) for entry in entries}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _disorder(entry: TableEntry, by_bytes: frozenset[tuple[int, str]]) -> str | None:
    key = schema_of(entry).key
    if not key:
        return "it has no key"
    for attribute in (a for name in key for a in entry.attributes if a.name == name):
        if attribute.is_hashed:
            return f'its key column "{attribute.name}" is hashed'
        if attribute.type in _TEXTS:
            if (entry.oid, attribute.name) not in by_bytes:
                return f'the order of its key column "{attribute.name}" is that of a language'
        elif attribute.type not in _ORDERED:
            return f'its key column "{attribute.name}" is of type {attribute.type_text}'
    return None


# --- planning -----------------------------------------------------------------------------------


def _nobody() -> None:
    """Never end the walk early."""


def prepare(connection: Session) -> None:
    """Make the planner use the key's index in this session."""
    query(connection, "SET enable_seqscan = off")


def next_bound(
    connection: Session,
    schema: TableSchema,
    table: TableName,
    span: KeySpan,
    rows: int,
    check: Callable[[], None] = _nobody,
    *,
    beneath: bool = False,
) -> Bound | None:
    """Find the first key after `rows` rows of the span; None if the span has no more rows than that.

    Each row may cost a read from a cold disk, so the walk has minutes. It is cancelled on the server when
    they are over (`StepTooLong`), or when `check` raises. The rows of a root are those `beneath` it.
    """
    columns = [f"rows.{quote_identifier(name)}" for name in schema.key]
    texts = ", ".join(f"{column}::text" for column in columns)
    # Qualify the columns in ORDER BY: a bare name would mean the selected text.
    statement = (
        f"SELECT {texts} FROM {_source(table, beneath)} AS rows{where(schema.key, [span])}"
        f" ORDER BY {', '.join(columns)} OFFSET {rows} LIMIT 1"
    )
    try:
        found = ask_within(connection.pgconn, statement, BOUND_SECONDS, check)
    except StatementCancelled as error:
        raise StepTooLong(
            error.code,
            f"{table}: the walk along its key took too long",
            detail=f"{rows} rows",
            hint="nothing to do: it is tried again",
        ) from None
    return bound_from(schema, [text or "" for text in found[0]]) if found else None


def bound_from(schema: TableSchema, texts: Sequence[str]) -> Bound | None:
    """Make a bound of the texts of its key columns; None for a key without a lake form (an infinite date)."""
    line = "\t".join(_escape(text) for text in texts) + "\n"
    columns = [next(c for c in schema.columns if c.name == name) for name in schema.key]
    copied = copyrows.decode(np.frombuffer(line.encode(), np.uint8).copy(), columns)
    if copied.unrepresentable:
        return None  # the copy of that row will stop the table
    [code] = keycode(copied.rows.columns).to_pylist()
    return Bound(tuple(texts), code)


_ESCAPES = str.maketrans(
    {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\b": "\\b", "\f": "\\f", "\v": "\\v"}
)


def _escape(text: str) -> str:
    return text.translate(_ESCAPES)


def bounds(schema: TableSchema, keys: pa.Table) -> list[Bound] | None:
    """Make bounds of these keys, given as the lake has them; None if the source could not read one."""
    codes = keycode([keys.column(name) for name in schema.key]).to_pylist()
    found: list[Bound] = []
    for code, row in zip(
        codes, zip(*(_texts(keys.column(name)) for name in schema.key), strict=True), strict=True
    ):
        texts = tuple(text for text in row if text is not None)
        if len(texts) < len(row):
            return None
        found.append(Bound(texts, code))
    return found


def _texts(values: pa.ChunkedArray) -> list[str | None]:
    """Print values of a key as the source reads them; it writes dates before our era in its own way."""
    if pa.types.is_temporal(values.type):
        unit, width = ("D", pa.int32()) if pa.types.is_date(values.type) else ("us", pa.int64())
        numbers = values.combine_chunks().view(width).to_numpy().astype(np.int64)
        shown = np.datetime_as_string(numbers.view(f"datetime64[{unit}]")).tolist()
        return [None if text.startswith(("-", "0000")) else text for text in shown]
    if pa.types.is_binary(values.type):
        return ["\\x" + value.hex() for value in values.to_pylist()]
    return [str(value) for value in values.to_pylist()]


def where(key: Sequence[str], spans: Sequence[KeySpan], condition: str = "") -> str:
    """The condition of these spans, joined with `condition` if there is one.

    The literals have no type of their own: they take that of their column.
    """
    row = f"ROW({', '.join(map(quote_identifier, key))})"
    limits = [" AND ".join(_limits(row, span)) for span in spans]
    within = "" if "" in limits else f"({' OR '.join(f'({each})' for each in limits)})"
    conditions = [each for each in (within, condition) if each]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _limits(row: str, span: KeySpan) -> Iterator[str]:
    if span.one_key and span.low:
        yield f"{row} = {_row(span.low)}"
        return
    if span.low:
        yield f"{row} {'>' if span.low.after else '>='} {_row(span.low)}"
    if span.high:
        yield f"{row} {'<=' if span.high.after else '<'} {_row(span.high)}"


def _row(bound: Bound) -> str:
    # `PINS` sets standard_conforming_strings: a backslash in a literal has no special meaning.
    return f"ROW({', '.join(_literal(text) for text in bound.texts)})"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


# --- reading ------------------------------------------------------------------------------------


@contextmanager
def chunk(
    connection: Session,
    columns: Sequence[str],
    piece: KeyRange,
    publication: str = "",
    record: Json | None = None,
) -> Iterator[tuple[ByXid, Stream]]:
    """Read a chunk as it is now: its handoff, and its rows as COPY text in whole lines.

    Call `prepare` for the connection first, and wait until no transaction of W is open.
    """
    with reading(connection, piece.table, piece.number):
        ask(connection.pgconn, BEGIN)
        # Lock before the snapshot is taken: a snapshot from before a TRUNCATE would find the table empty.
        beneath = record is not None and is_root(record)
        lock(connection, piece.table, beneath=beneath)
        prove(connection, piece.table, piece.number)
        prove_columns(connection, piece.table, column_numbers(record))
        _refuse_other_order(connection, piece.number)
        handoff = see(connection.pgconn, frozenset())
        listed = ", ".join(map(quote_identifier, columns))
        condition = row_filter(connection, publication, piece.number)
        within = where(piece.key, piece.spans, condition)
        tree = prove_tree(connection, piece.table, piece.number, record) if beneath else ()
        statement = f"COPY (SELECT {listed} FROM {_source(piece.table, beneath)}{within}) TO STDOUT"
        with evaluating(connection, piece.table, condition):
            yield handoff, stream_copy(connection.pgconn, statement)
        if beneath and not connection.closed:
            prove_same_leaves(connection, piece.table, piece.number, tree)
        confirm(connection, piece.table, [piece.number, *(branch.oid for branch in tree)])


def _refuse_other_order(connection: Session, oid: int) -> None:
    """Refuse a key that has got another collation: that rewrites no row, so no schema check notices it."""
    for table, reason in disorder(connection, list(read_entries(connection, [oid]).values())).items():
        raise ShapeChanged(
            "TABLE_CHANGED",
            f"{table} is not what was begun to be copied: {reason}",
            hint=f"headrace tables resync {table}",
        )


def _source(table: TableName, beneath: bool) -> str:
    """The table in a FROM clause: ONLY, unless it is partitioned, since children are copied as themselves."""
    return str(table) if beneath else f"ONLY {table}"


def paged_copy(
    columns: Sequence[str],
    table: TableName,
    key: Sequence[str],
    texts: Sequence[Key],
    condition: str = "",
    *,
    beneath: bool = False,
) -> str:
    """The COPY of the rows with these keys (as the source prints them), each after its table and page."""
    listed = ", ".join(map(quote_identifier, columns))
    row = f"ROW({', '.join(map(quote_identifier, key))})"
    wanted = " OR ".join(f"{row} = ROW({', '.join(map(_literal, each))})" for each in texts)
    page = "tableoid::int8, (ctid::text::point)[0]::int8"
    also = f" AND {condition}" if condition else ""
    return f"COPY (SELECT {page}, {listed} FROM {_source(table, beneath)} WHERE ({wanted}){also}) TO STDOUT"
