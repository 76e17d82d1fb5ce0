"""The reader of a copy: ranges of pages or of keys, over one connection, as rows of the lake.

    ticket   of a snapshot    its id and its handoff     ─► pages, as the leader sees them   (`follower`)
             of a key walk    the life of the server     ─► ranges of keys, as they are now  (`key_range`)
             of both          the publication, by whose row filter the rows are read         (`table_access`)

`plan` makes a ticket in the driver; it travels as JSON. All rows come through COPY and `decode.copyrows`. DDL
waits for the transaction that reads a piece, and the table's writers wait behind the DDL. So the transaction
ends with the last row, before a file is written.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import chain
from types import TracebackType

import numpy as np
import pyarrow as pa

from headrace.core.handoff import HANDOFFS, shift
from headrace.core.records import from_record
from headrace.core.schema import Column, TableSchema
from headrace.decode import copyrows
from headrace.decode.copyrows import CopiedRows
from headrace.decode.kernel import Bytes, Ints
from headrace.sources.contract.copying import Key, KeyRange, Piece, PieceRead
from headrace.sources.contract.values import Json
from headrace.sources.postgres.copy import key_range
from headrace.sources.postgres.copy.copy_out import Stream, stream_copy
from headrace.sources.postgres.copy.follower import PostgresFollower, copy, following
from headrace.sources.postgres.copy.measure import CopyRange
from headrace.sources.postgres.copy.table_access import (
    evaluating,
    overtaken,
    prove_same_leaves,
    prove_tree,
    row_filter,
)
from headrace.sources.postgres.decode import labels
from headrace.sources.postgres.session.statements import Session, query

_PAGE = Column("\0page", pa.int64(), "int", "bigint")  # no identifier of a source holds a NUL
_LEAF = Column("\0leaf", pa.int64(), "int", "bigint")
_PAGES = 32  # bits for a page
_AHEAD_BYTES = 192 << 20  # of rows that are read before the first is used


class PostgresReader:
    """A connection that reads one piece after another, by a ticket."""

    def __init__(self, follower: PostgresFollower, ticket: Json) -> None:
        self._follower = follower
        self._ticket = ticket

    def __enter__(self) -> PostgresReader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._follower.__exit__(kind, error, trace)

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        """Read these columns of a piece."""
        names = [column.name for column in columns]
        connection, publication = self._follower.connection, self._ticket["publication"]
        if isinstance(piece, KeyRange):
            key_range.prepare(connection)
            with ExitStack() as transaction:
                chunk = key_range.chunk(connection, names, piece, publication, record)
                seen, buffers = transaction.enter_context(chunk)
                transaction.enter_context(closing(buffers))
                rows = decode(columns, buffers, record)
                ahead, whole = _ahead(rows)
                if whole:
                    transaction.close()
                yield PieceRead(shift(seen, self._ticket["base"]), chain(ahead, rows))
            return
        handoff = from_record(HANDOFFS, self._ticket["handoff"])
        pages, snapshot = _pages(piece), self._ticket["snapshot"]
        with closing(copy(connection, snapshot, names, pages, publication, record)) as buffers:
            yield PieceRead(handoff, decode(columns, buffers, record))

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[Key]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys by the key's index, and the piece of each by its page."""
        ranges = [_pages(piece) for piece in pieces]
        first, connection = ranges[0], self._follower.connection
        with following(connection, self._ticket["snapshot"], first):
            condition = row_filter(connection, self._ticket["publication"], first.oid)
            statement = key_range.paged_copy(
                schema.names, first.table, schema.key, keys, condition, beneath=first.tree is not None
            )
            with (
                evaluating(connection, first.table, condition),
                closing(_by_key(connection, statement)) as buffers,
            ):
                for copied in decode((_LEAF, _PAGE, *schema.columns), buffers):
                    which = _places(ranges, copied.rows)
                    for number in np.unique(which).tolist():
                        rows = copied.rows.filter(pa.array(which == number))
                        yield number, rows.remove_column(0).remove_column(0)
            if first.tree is not None:
                tree = prove_tree(connection, first.table, first.oid, None)
                prove_same_leaves(connection, first.table, first.oid, tree)


def _ahead(rows: Iterator[CopiedRows]) -> tuple[list[CopiedRows], bool]:
    """Read as many rows as memory may hold; True if these are all, so that no session waits for us."""
    found: list[CopiedRows] = []
    size = 0
    for copied in rows:
        found.append(copied)
        size += copied.rows.nbytes
        if size >= _AHEAD_BYTES:
            return found, False
    return found, True


def _places(ranges: Sequence[CopyRange], rows: pa.Table) -> Ints:
    """Find the number of the range that each row is in, by its table and its page."""
    lows = np.array([(piece.read_oid << _PAGES) + piece.low_page for piece in ranges], np.int64)
    order = np.argsort(lows)
    places = (rows.column(0).to_numpy() << _PAGES) + rows.column(1).to_numpy()
    return np.asarray(order[np.searchsorted(lows[order], places, side="right") - 1])


def decode(
    columns: Sequence[Column], buffers: Iterable[Bytes], record: Json | None = None
) -> Iterator[CopiedRows]:
    """Decode rows; the labels of enums are the recorded ones, if there is a record.

    Columns that are read as plain texts have no labels.
    """
    if all(column.source_type == "text" for column in columns):
        record = None
    for buffer in buffers:
        copied = copyrows.decode(buffer, columns)
        if record is not None and not labels.stand_copied(copied, record):
            raise overtaken("a value of an enum is none of the labels that were recorded")
        yield copied


def _pages(piece: Piece) -> CopyRange:
    assert isinstance(piece, CopyRange), "a snapshot is cut into ranges of pages"
    return piece


def _by_key(connection: Session, statement: str) -> Stream:
    query(connection, "SET LOCAL enable_seqscan = off")
    yield from stream_copy(connection.pgconn, statement)
