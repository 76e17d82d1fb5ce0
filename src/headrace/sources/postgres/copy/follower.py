"""Followers: read ranges of a table, on executors, as a leader's snapshot sees them.

    BEGIN REPEATABLE READ; SET TRANSACTION SNAPSHOT id; LOCK; row filter; COPY a range of pages; ROLLBACK

A follower needs only its arguments. It may run anywhere and as often as needed while the leader is open. It
reads one range after another over one connection, each in a transaction of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType

from psycopg import pq

from headrace.core.errors import Transient
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.partition_tree import Branch, fingerprint
from headrace.sources.postgres.copy.copy_out import Stream, error_of, stream_copy
from headrace.sources.postgres.copy.measure import CopyRange, copy_statement
from headrace.sources.postgres.copy.table_access import (
    column_numbers,
    confirm,
    evaluating,
    lock,
    overtaken,
    prove,
    prove_columns,
    prove_tree,
    reading,
    row_filter,
)
from headrace.sources.postgres.copy.visibility import BEGIN
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import connect
from headrace.sources.postgres.session.identity import PostgresIdentity, identify, verify
from headrace.sources.postgres.session.statements import Session, answer, ask, query


class PostgresFollower:
    """One connection to this very source; it reads one range after another."""

    def __init__(self, address: PostgresAddress, identity: PostgresIdentity, *, role: str) -> None:
        self._address = address
        self._identity = identity
        self._role = role
        self._connection: Session | None = None

    def __enter__(self) -> PostgresFollower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            self._connection.close()

    @property
    def connection(self) -> Session:
        """The connection; a new one, if a copy was given up half-way or the server ended the old one."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self._address, role=self._role)
            verify(identify(self._connection), self._identity)
        return self._connection


@contextmanager
def following(
    connection: Session, snapshot_id: str, piece: CopyRange, record: Json | None = None
) -> Iterator[None]:
    """Open a transaction that sees the range's table as the leader does."""
    with reading(connection, piece.table, piece.oid):
        _import(connection, snapshot_id)
        meant = [piece.oid, *(branch.oid for branch in hold(connection, piece, record))]
        yield
        for name in {piece.table, piece.read}:
            confirm(connection, name, meant)


def copy(
    connection: Session,
    snapshot_id: str,
    columns: Sequence[str],
    piece: CopyRange,
    publication: str = "",
    record: Json | None = None,
) -> Stream:
    """Read the rows of a range as of the leader's snapshot: COPY text, in pieces of whole lines.

    If the publication has a row filter for the table, only the rows that pass it.
    """
    with following(connection, snapshot_id, piece, record):
        prove_columns(connection, piece.table, column_numbers(record))
        condition = row_filter(connection, publication, piece.oid)
        with evaluating(connection, piece.table, condition):
            yield from stream_copy(connection.pgconn, copy_statement(columns, piece, condition))


_OVERTAKEN = """
SELECT c.relfilenode IS NOT DISTINCT FROM pg_catalog.pg_relation_filenode(c.oid)
  FROM pg_catalog.pg_class c WHERE c.oid = %s
"""


def hold(connection: Session, piece: CopyRange, record: Json | None = None) -> tuple[Branch, ...]:
    """Lock the table, and prove that its rows are those of the snapshot; returns the tree beneath a root.

    TRUNCATE and rewriting DDL ignore snapshots: a later reader finds the table empty, however old its
    snapshot is. So lock the table as a reader first. Then compare the file that the snapshot knows (the
    catalog, by a query) with the file that is read (by a function).

    In a partitioned table the file is the partition's. And the snapshot must know the partitions that the
    ranges were cut by.
    """
    lock(connection, piece.table)
    prove(connection, piece.table, piece.oid)
    tree: tuple[Branch, ...] = ()
    if piece.tree is not None:
        tree = prove_tree(connection, piece.table, piece.oid, record)
        if fingerprint(tree) != piece.tree:
            raise overtaken(f"{piece.table} got or lost a partition before the snapshot that it is copied by")
        if piece.leaf is None:
            return tree
        lock(connection, piece.leaf)
        prove(connection, piece.leaf, piece.leaf_oid)
    if query(connection, _OVERTAKEN, [piece.read_oid]) != [(True,)]:
        raise overtaken(f"{piece.read} was truncated or rewritten after the snapshot that it is copied by")
    return tree


# SET TRANSACTION SNAPSHOT fails with these when the exporting transaction has ended.
_GONE = ("22023", "42704", "55000")


def _import(connection: Session, snapshot_id: str) -> None:
    ask(connection.pgconn, BEGIN)
    result = answer(connection.pgconn, f"SET TRANSACTION SNAPSHOT '{snapshot_id}'")
    if result.status == pq.ExecStatus.COMMAND_OK:
        return
    error = error_of(result)
    if (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode() in _GONE:
        raise Transient(
            "PG_SNAPSHOT_GONE",
            "the snapshot to be copied is no longer held",
            detail=error.detail,
            hint="nothing to do: what is missing is copied from a new snapshot",
        )
    raise error
