"""The decoder of pgoutput: `contract.decoder.Decoder`, over `changes`.

It cuts bytes of the stream and joins them again, whole buffers at a time, without reading a tuple:

    split    the place where a large transaction may be cut, and the context of the piece after it
    select   the bytes that some tables need: their changes and layouts, and the begins of their transactions
    whole    a transaction that was streamed while it ran, as an ordinary one

To split, select or join never changes what is decoded (`tests/laws/sources`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from headrace.core.records import from_record
from headrace.core.schema import Column
from headrace.core.truncation import Truncations
from headrace.decode import pgoutput, printing
from headrace.decode.kernel import Bytes, Flags
from headrace.decode.pgoutput import Messages, alone, begins, scan
from headrace.sources.contract.decoder import (
    Context,
    RunningTransaction,
    SelectedBytes,
    TableChanges,
    TableFailure,
    TableFilter,
    TextDecoder,
    TextRows,
)
from headrace.sources.contract.values import Json
from headrace.sources.postgres.decode import changes
from headrace.sources.postgres.decode.changes import partitions, truncates
from headrace.sources.postgres.decode.context import (
    PostgresOpenTransaction,
    PostgresStreamContext,
    newest,
    own,
)
from headrace.sources.postgres.types import casts

_BEGIN, _COMMIT, _RELATION, _TYPE = ord("B"), ord("C"), ord("R"), ord("Y")
_CHANGES = (ord("I"), ord("U"), ord("D"))


def split(data: Bytes, context: PostgresStreamContext) -> tuple[int, PostgresStreamContext]:
    """Count the bytes that can be decoded alone, and return the context of the bytes after them."""
    found = _together(scan(data, in_stream=context.inside is not None and context.inside.in_stream))
    messages = found if context.inside is None else context.inside.lasting(found)
    layouts = newest([*context.layouts, *_layouts(data, messages)])
    return found.tail, PostgresStreamContext(layouts, _after(context.inside, data, messages))


def _together(messages: Messages) -> Messages:
    """The messages without layouts at their end: these must stay with the change that they precede."""
    rest = np.flatnonzero(~np.isin(messages.kind, (_RELATION, _TYPE)))
    count = int(rest[-1]) + 1 if len(rest) else 0
    if not count or count == len(messages):
        return messages
    return replace(messages.take(slice(0, count)), tail=int(messages.frame_start[count]))


def _layouts(data: Bytes, messages: Messages) -> Iterator[bytes]:
    for row in np.flatnonzero(messages.kind == _RELATION):
        yield alone(_RELATION, data[messages.body[row] : messages.stop[row]].tobytes())


def _after(
    inside: PostgresOpenTransaction | None, data: Bytes, messages: Messages
) -> PostgresOpenTransaction | None:
    """The transaction that is open after these messages, if there is one."""
    heads = begins(data, messages)
    begun = int(heads.row[-1]) if len(heads.row) else -1
    if (messages.kind[begun + 1 :] == _COMMIT).any():
        return None
    if begun < 0:
        return None if inside is None else _count(inside, data, messages)
    head = PostgresOpenTransaction(
        int(heads.commit_lsn[-1]), int(heads.xid[-1]), int(heads.commit_ts[-1]), {}
    )
    return _count(head, data, messages.take(slice(begun + 1, None)))


def _count(inside: PostgresOpenTransaction, data: Bytes, messages: Messages) -> PostgresOpenTransaction:
    """Add these messages of the transaction to its ordinals."""
    counts = dict(inside.ordinals)
    changed = messages.relation[np.isin(messages.kind, _CHANGES)]
    for oid, count in zip(*np.unique(changed, return_counts=True), strict=True):
        counts[int(oid)] = counts.get(int(oid), 0) + int(count)
    for oid, rows in truncates(data, messages).items():
        counts[oid] = counts.get(oid, 0) + len(rows)
    return replace(inside, ordinals=counts)


def select(data: Bytes, context: PostgresStreamContext, tables: Collection[int]) -> SelectedBytes | None:
    """Pick the messages that the tables need, and the begins of their transactions."""
    messages = scan(data, in_stream=context.inside is not None and context.inside.in_stream)
    ours = np.isin(messages.relation, np.array(sorted(tables), np.int64))
    changed = np.isin(messages.kind, _CHANGES) & ours
    emptied = {oid: rows for oid, rows in truncates(data, messages).items() if oid in tables}
    concerned = frozenset({*map(int, np.unique(messages.relation[changed])), *emptied})
    if not concerned:
        return None
    truncated = np.zeros(len(messages), np.bool_)
    for rows in emptied.values():
        truncated[rows] = True
    layouts = (messages.kind == _RELATION) & ours
    layouts[partitions(messages, np.flatnonzero(changed))] = True  # of partitions whose root is ours
    return SelectedBytes(
        data=_only(data, messages, _with_begins(messages, changed | truncated) | layouts),
        context=context.only(tables),
        tables=concerned,
        changes=int(changed.sum()),
        truncates=bool(emptied),
    )


def _with_begins(messages: Messages, changes: Flags) -> Flags:
    """Flag these changes and the begins of their transactions."""
    begun = messages.kind == _BEGIN
    # The number of each message's transaction: 0 is the one that was open before.
    number = np.cumsum(begun)
    concerned = np.zeros(int(number[-1]) + 1 if len(number) else 1, np.bool_)
    concerned[number[changes]] = True
    return np.asarray(changes | (begun & concerned[number]), np.bool_)


def _only(data: Bytes, messages: Messages, wanted: Flags) -> Bytes:
    """The bytes of these messages, by one running sum over all bytes."""
    edges = np.zeros(len(data) + 1, np.int8)
    edges[messages.frame_start[wanted]] += 1
    edges[messages.stop[wanted]] -= 1
    return data[np.cumsum(edges[:-1], dtype=np.int8).astype(np.bool_)]


def whole(data: Bytes, context: PostgresStreamContext) -> Bytes:
    """Rewrite all bytes of a streamed transaction as those of an ordinary one."""
    inside = context.inside
    assert inside is not None
    return pgoutput.whole(
        data, context.messages(data), commit_lsn=inside.time, commit_ts=inside.commit_ts, xid=inside.xid
    )


@dataclass(frozen=True, slots=True)
class PostgresDecoder:
    """Decodes pgoutput. `reference` is the 64-bit id of a recent transaction; 0: ids stay as on the wire."""

    statements: ClassVar[None] = None

    reference: int = 0

    @property
    def running(self) -> PostgresDecoder:
        return self

    @property
    def as_text(self) -> TextDecoder:
        def rows(data: Bytes, context: Context, tables: Collection[int]) -> Iterator[TextRows]:
            return changes.texts(data, own(context), tables, self.reference)

        return TextDecoder(rows, changes.flaws)

    def between(self, layouts: Iterable[bytes]) -> PostgresStreamContext:
        return PostgresStreamContext(newest(layouts))

    def within(self, transaction: RunningTransaction) -> PostgresStreamContext:
        inside = PostgresOpenTransaction(
            time=transaction.time or 0,
            xid=transaction.number,
            commit_ts=transaction.commit_ts,
            ordinals={},
            in_stream=True,
            rolled_back=transaction.aborted_parts,
            by_subtransaction=transaction.time is None,
        )
        return PostgresStreamContext(inside=inside)

    def restore(self, record: Json) -> PostgresStreamContext:
        return from_record(PostgresStreamContext, record)

    def whole(self, data: Bytes, context: Context) -> Bytes:
        return whole(data, own(context))

    def split(self, data: Bytes, context: Context) -> tuple[int, Context]:
        return split(data, own(context))

    def select(self, data: Bytes, context: Context, tables: Collection[int]) -> SelectedBytes | None:
        return select(data, own(context), tables)

    def truncations(self, data: Bytes, context: Context, tables: Mapping[int, int]) -> dict[int, Truncations]:
        return changes.truncations(data, own(context), tables, self.reference)

    def decode(
        self, data: Bytes, context: Context, tables: Mapping[int, TableFilter]
    ) -> Iterator[TableChanges | TableFailure]:
        return changes.decode(data, own(context), tables, self.reference)

    def transaction_id(self, number: int) -> int:
        return changes.widen_xid(number, self.reference)

    def transaction_name(self, transaction: RunningTransaction) -> int:
        return self.transaction_id(transaction.number)

    def print_values(self, values: pa.Array) -> pa.Array:
        return printing.print_values(values)

    def cast(self, column: Column, text: str) -> str:
        return casts.value(column, text)
