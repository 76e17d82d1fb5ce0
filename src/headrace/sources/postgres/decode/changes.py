"""From a slice of the stream to change batches, one table at a time.

A slice is the raw bytes of whole transactions, or of a piece of a very large one. Its context says in which
transaction it begins, and which layouts hold there. Each change gets the time, xid and commit timestamp of
the BEGIN before it, and its ordinal: its number within its transaction and table, in log order.

    B ─ R(t) ─ I(t) ─ U(t) ─ I(u) ─ C   B ─ U(t) ─ R(t') ─ I(t) ─ C
               t,0     t,1    u,0             t,0           t,1       ordinals
        └─────── layout t ────────────────────┘ └─ t' ─┘             relation versions

If a transaction was streamed while it ran, the messages of its rolled-back subtransactions are left out
first, with their layouts: the server sends again those that still hold.

A TRUNCATE is no row change, but takes an ordinal of each table that it names. `truncations` finds them
without decoding a row, for callers that must know them before the changes are read. A TRUNCATE names every
published table that it emptied, so its flags (CASCADE, RESTART IDENTITY) add nothing.

Changes of a partition come under the name of its root. The partition's own layout precedes them; it decodes
no row, but shows which partition it is (`partitions`).

A layout that does not match the recorded columns is a failure of its table at its time. It is a value and not
an exception, so that the other tables of the slice go on. Bytes that can't be read at all raise: that
concerns the whole source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.columns import across, column
from headrace.core.conversion import Conversion, Take
from headrace.core.errors import Definite, HeadraceError, ShapeChanged
from headrace.core.handoff import widen
from headrace.core.history import history
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.core.truncation import Truncation, Truncations
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.pgoutput import BeginMessages, Messages, Relation, begins, relation, scan, truncate
from headrace.decode.pgoutput.batch import PgoutputChangeMeta, changes
from headrace.decode.values.strings import ValueUnhashed
from headrace.sources.contract.decoder import (
    TEXT_ROWS,
    TableChanges,
    TableFailure,
    TableFilter,
    TextRows,
)
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import is_listed, is_root, not_whole_error, tree_of, types_of
from headrace.sources.postgres.decode import labels
from headrace.sources.postgres.decode.context import PostgresOpenTransaction, PostgresStreamContext
from headrace.sources.postgres.types.columns import is_same_form, is_wider

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_RELATION, _TRUNCATE, _TYPE = ord("R"), ord("T"), ord("Y")
_FULL = "f"  # of a relation's identity


@dataclass(frozen=True, slots=True)
class _TableMessages:
    """The wanted changes of one table: the numbers of their messages, and their ordinals."""

    oid: int
    table_filter: TableFilter
    rows: Ints
    ordinals: Ints

    def part(self, low: int, high: int) -> _TableMessages:
        return _TableMessages(self.oid, self.table_filter, self.rows[low:high], self.ordinals[low:high])


@dataclass(frozen=True, slots=True)
class _Heads:
    """For each message, the head of its transaction."""

    number: Ints
    time: Ints
    xid: Ints
    commit_ts: Ints


def decode(
    data: Bytes, context: PostgresStreamContext, tables: Mapping[int, TableFilter], reference: int
) -> Iterator[TableChanges | TableFailure]:
    """Decode all changes of the wanted tables in `data`."""
    messages = context.messages(data)
    heads = _heads(begins(data, messages), messages, context.inside, reference)
    versions = _versions(data, messages, relations_of(context.layouts))
    emptied = truncates(data, messages)
    for oid, wanted in tables.items():
        rows, ordinals = _number_messages(messages, heads, oid, emptied, context.inside)
        new = (heads.time[rows] >= wanted.since) & (messages.kind[rows] != _TRUNCATE)
        taken = _TableMessages(oid, wanted, rows[new], ordinals[new])
        if is_root(wanted.details) and (failure := _foreign_rows(data, messages, heads, taken)) is not None:
            yield failure
            continue
        yield from _of_table(data, messages, heads, versions.get(oid, []), taken)


def flaws(layouts: Iterable[bytes], tables: Mapping[int, TableName]) -> dict[int, HeadraceError]:
    """Find the tables whose layout says that old rows come in part."""
    known = relations_of(layouts)
    return {
        oid: not_whole_error(name)
        for oid, name in tables.items()
        if oid in known and known[oid].identity != _FULL
    }


def texts(
    data: Bytes, context: PostgresStreamContext, tables: Collection[int], reference: int
) -> Iterator[TextRows]:
    """All rows of these tables, as the server printed them, under the layouts of the stream."""
    messages = context.messages(data)
    heads = _heads(begins(data, messages), messages, context.inside, reference)
    versions = _versions(data, messages, relations_of(context.layouts))
    emptied = truncates(data, messages)
    for oid in tables:
        rows, ordinals = _number_messages(messages, heads, oid, emptied, context.inside)
        changed = messages.kind[rows] != _TRUNCATE
        rows, ordinals = rows[changed], ordinals[changed]
        for layout, low, high in _by_version(rows, versions.get(oid, []), oid):
            part = rows[low:high]
            yield _texts_of(oid, data, messages.take(part), layout, _meta(heads, part, ordinals[low:high]))


def _texts_of(
    oid: int, data: Bytes, messages: Messages, layout: Relation, meta: PgoutputChangeMeta
) -> TextRows:
    width = len(layout.columns)
    plain = tuple(Column(str(place), pa.string(), "text", "text") for place in range(width))
    schema = TableSchema(plain, key=(), full=True)
    found = changes(data, messages, np.arange(width), schema, meta)
    every = history(schema, pa.Table.from_batches([found.batch]))
    rows = [
        column(every, "_time"),
        column(every, "_diff"),
        across([column(every, name) for name in schema.names], every.num_rows),
    ]
    return TextRows(oid, pa.Table.from_arrays(rows, schema=TEXT_ROWS), column(every, "_xid"))


def truncations(
    data: Bytes, context: PostgresStreamContext, tables: Mapping[int, int], reference: int
) -> dict[int, Truncations]:
    """Find the truncations of tables in `data`; `tables` has by oid the time from which on they count."""
    messages = context.messages(data)
    emptied = truncates(data, messages)
    wanted = [oid for oid in tables if oid in emptied]
    if not wanted:
        return {}
    heads = _heads(begins(data, messages), messages, context.inside, reference)
    found = {}
    for oid in wanted:
        rows, ordinals = _number_messages(messages, heads, oid, emptied, context.inside)
        chosen = (messages.kind[rows] == _TRUNCATE) & (heads.time[rows] >= tables[oid])
        at = rows[chosen]
        places = zip(heads.time[at], ordinals[chosen], heads.xid[at], heads.commit_ts[at], strict=True)
        found[oid] = tuple(Truncation(*map(int, place)) for place in places)
    return {oid: some for oid, some in found.items() if some}


def truncates(data: Bytes, messages: Messages) -> dict[int, Ints]:
    """The numbers of the messages that truncate each table."""
    found: dict[int, list[int]] = {}
    for row in np.flatnonzero(messages.kind == _TRUNCATE):
        for oid in truncate(data, int(messages.body[row]), int(messages.stop[row])).oids:
            found.setdefault(oid, []).append(int(row))
    return {oid: np.array(rows, np.int64) for oid, rows in found.items()}


def _heads(
    found: BeginMessages, messages: Messages, inside: PostgresOpenTransaction | None, reference: int
) -> _Heads:
    number = np.searchsorted(found.row, np.arange(len(messages)), side="right") - 1
    before = inside or PostgresOpenTransaction(-1, 0, 0, {})

    def each(values: Ints, first: int) -> Ints:
        return np.concatenate([np.array([first], np.int64), values])[number + 1]

    own = before.by_subtransaction
    return _Heads(
        number=number,
        time=each(found.commit_lsn, before.time),
        xid=messages.xid.astype(np.int64) if own else _wide(each(found.xid, before.xid), reference),
        commit_ts=each(found.commit_ts, before.commit_ts),
    )


def widen_xid(xid: int, reference: int) -> int:
    """Widen the wire's 32-bit xid to the nearest 64-bit id to a recent one."""
    return int(_wide(np.array([xid], np.int64), reference)[0])


def _wide(xids: Ints, reference: int) -> Ints:
    low = pa.array((xids & 0xFFFFFFFF).astype(np.uint32))
    return np.asarray(widen(low, reference).to_numpy(), dtype=np.int64)


def _versions(
    data: Bytes, messages: Messages, known: Mapping[int, Relation]
) -> dict[int, list[tuple[int, Relation]]]:
    """The layouts of each table, each with the number of the message from which it holds."""
    versions = {oid: [(-1, layout)] for oid, layout in known.items()}
    for row in np.flatnonzero(messages.kind == _RELATION):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        of_table = versions.setdefault(layout.oid, [])
        if not of_table or of_table[-1][1] != layout:  # each streamed transaction repeats them
            of_table.append((int(row), layout))
    return versions


def _number_messages(
    messages: Messages,
    heads: _Heads,
    oid: int,
    emptied: Mapping[int, Ints],
    inside: PostgresOpenTransaction | None,
) -> tuple[Ints, Ints]:
    """The numbers of the messages that change or truncate a table, in log order, and their ordinals."""
    changed = np.isin(messages.kind, (_INSERT, _UPDATE, _DELETE)) & (messages.relation == oid)
    if oid in emptied:
        changed[emptied[oid]] = True
    rows = np.flatnonzero(changed)
    return rows, _ordinals(heads.number[rows], inside.ordinals.get(oid, 0) if inside else 0)


def _ordinals(transaction: Ints, before: int) -> Ints:
    """The number of each change within its transaction; the open transaction had `before` changes already."""
    order = np.arange(len(transaction))
    starts = np.searchsorted(transaction, transaction, side="left")
    return order - starts + np.where(transaction == -1, before, 0)


def _of_table(
    data: Bytes,
    messages: Messages,
    heads: _Heads,
    versions: list[tuple[int, Relation]],
    taken: _TableMessages,
) -> Iterator[TableChanges | TableFailure]:
    """Decode the table's changes, one version of its layout after another."""
    for layout, low, high in _by_version(taken.rows, versions, taken.table_filter.name):
        yield _under(data, messages, heads, layout, taken.part(low, high))


def _by_version(
    rows: Ints, versions: list[tuple[int, Relation]], table: TableName | int
) -> Iterator[tuple[Relation, int, int]]:
    """Each layout of a table, and between which of its messages it holds."""
    if not len(rows):
        return
    bounds = np.searchsorted(rows, [row for row, _ in versions])
    if not versions or bounds[0] > 0:
        raise Definite(
            "PG_UNKNOWN_RELATION",
            f"the stream holds changes of {table} but not its layout",
            hint="report it; nothing is acknowledged until it can be read",
        )
    ends = [*bounds[1:], len(rows)]
    for (_, layout), low, high in zip(versions, bounds, ends, strict=True):
        if low < high:
            yield layout, int(low), int(high)


def _foreign_rows(
    data: Bytes, messages: Messages, heads: _Heads, taken: _TableMessages
) -> TableFailure | None:
    """The failure of a root with rows of a partition that may not be complete in the stream."""
    details, schema = taken.table_filter.details, taken.table_filter.schema
    tree, listed = {branch.oid: branch for branch in tree_of(details)}, is_listed(details)
    for row in partitions(messages, taken.rows):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        if layout.oid == taken.oid:
            continue
        what = _partition_flaw(tree.get(layout.oid), layout, schema, int(heads.xid[row]), listed)
        if what is not None:
            time = int(heads.time[row])
            return TableFailure(taken.oid, _altered_error(taken.table_filter, time, f"{layout.name}: {what}"))
    return None


def partitions(messages: Messages, changes: Ints) -> Ints:
    """The numbers of the layouts right before these changes: the root's, then the partition's.

    The server sends both before the partition's first change, one after the other, perhaps with types in
    between.
    """
    said = np.isin(messages.kind, (_RELATION, _TYPE))
    follows = np.flatnonzero(~said)
    rows = np.flatnonzero(messages.kind == _RELATION)
    at = np.searchsorted(follows, rows)
    there = at < len(follows)
    return rows[there][np.isin(follows[at[there]], changes)]


_NEAR = 1 << 24  # a transaction is older than the attaching one if its xid is at most so much smaller


def _partition_flaw(
    branch: Branch | None, layout: Relation, schema: TableSchema, xid: int, listed: bool
) -> str | None:
    """Say why a partition's rows may not be complete in the stream; None if they are.

    It may be gone: its rows went without a message. Or the transaction that attached it, or an older one,
    wrote to it: no file node shows whether that also truncated it. Or its old rows have another identity than
    the root's layout announces.
    """
    if branch is None:
        return "it is no partition any more"
    if 0 <= (branch.attached_by - xid) & 0xFFFFFFFF < _NEAR:
        return "the transaction that made it a partition wrote to it, and may have truncated it"
    if layout.identity == _FULL:
        return None
    # With a column list the server picks this layout's columns by their numbers in the root.
    key = {column.name for column in layout.columns if column.in_identity}
    same = layout.identity == branch.identity if listed else key == set(schema.key)
    return None if same and not schema.full else "its replica identity is another than that of its root"


def _under(
    data: Bytes, messages: Messages, heads: _Heads, layout: Relation, taken: _TableMessages
) -> TableChanges | TableFailure:
    wanted, rows = taken.table_filter, taken.rows
    way = _way(layout, wanted, int(heads.time[rows[0]]))
    if way is None:
        return TableFailure(taken.oid, _altered_error(wanted, int(heads.time[rows[0]])))
    try:
        found = changes(
            data,
            messages.take(rows),
            positions=np.array(way.places, np.int64),
            schema=wanted.schema,
            meta=_meta(heads, rows, taken.ordinals),
            values=way.values,
        )
    except ValueUnhashed as error:
        return TableFailure(taken.oid, error)
    if not labels.stand(found.batch, found.bad, wanted.details):
        return TableFailure(taken.oid, labels.renamed_error(wanted.name, int(heads.time[rows[0]])))
    return TableChanges(taken.oid, found.batch, found.bad)


def _meta(heads: _Heads, rows: Ints, ordinals: Ints) -> PgoutputChangeMeta:
    return PgoutputChangeMeta(
        time=heads.time[rows], ordinal=ordinals, xid=heads.xid[rows], commit_ts=heads.commit_ts[rows]
    )


def _way(layout: Relation, wanted: TableFilter, time: int) -> Conversion | None:
    """Find the conversion from rows of this layout to those of the recorded table; None if none is known.

    A known layout is the table's when it was copied, or from before a change that was followed. Only here DDL
    that was undone shows: columns that swapped names for a while (so their order counts); another type, which
    prints values otherwise; another identity, with other keys for old rows.
    """
    names = tuple(column.name for column in layout.columns)
    now = Conversion(wanted.schema.names, tuple(map(Take, range(len(wanted.schema.columns)))))
    earlier = (conversion for conversion in wanted.schema.earlier if time < conversion.until)
    return next((way for way in (*earlier, now) if way.names == names and _fits(layout, wanted, way)), None)


def _fits(layout: Relation, wanted: TableFilter, way: Conversion) -> bool:
    schema, recorded = wanted.schema, types_of(wanted.details)
    given = [(column.type_oid, column.typmod) for column in layout.columns]
    key = {way.names[column] for column, place in enumerate(way.places) if _in_key(schema, place)}
    return (
        TableName(layout.namespace or "pg_catalog", layout.name) == wanted.name
        and (layout.identity == _FULL) == schema.full
        and (schema.full or {column.name for column in layout.columns if column.in_identity} == key)
        and all(
            not recorded or place < 0 or _prints_alike(recorded[place], given[column])
            for column, place in enumerate(way.places)
        )
    )


def _in_key(schema: TableSchema, place: int) -> bool:
    return place >= 0 and schema.names[place] in schema.key


def _prints_alike(recorded: tuple[int, int], given: tuple[int, int]) -> bool:
    """Tell whether text of the given type can be decoded as text of the recorded one."""
    return is_same_form(recorded, given) or is_wider(given, recorded)


def _altered_error(wanted: TableFilter, time: int, what: str = "") -> Definite:
    return ShapeChanged(
        "TABLE_ALTERED",
        f"{wanted.name} does not have the columns{', the partitions' if what else ''} and the identity that"
        " were recorded",
        detail=f"seen in the transaction of _time {time}" + (f": partition {what}" if what else ""),
        hint=f"headrace tables resync {wanted.name}",
    )


def relations_of(frames: Iterable[bytes]) -> dict[int, Relation]:
    """Read layouts from whole frames, as the spool keeps them; a later frame of a table wins."""
    data = np.frombuffer(b"".join(frames), np.uint8)
    messages = scan(data)
    known: dict[int, Relation] = {}
    for row in np.flatnonzero(messages.kind == _RELATION):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        known[layout.oid] = layout
    return known
