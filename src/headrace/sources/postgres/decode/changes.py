"""From a slice of the stream to change batches, one table at a time.

A slice is the raw bytes of whole transactions, or of a piece of a very large one; its context says in which
transaction it begins, and which layouts hold there. Each change gets the time, xid and commit timestamp of
the BEGIN before it, and its ordinal: its number within its transaction and table, in log order.

    B ─ R(t) ─ I(t) ─ U(t) ─ I(u) ─ C   B ─ U(t) ─ R(t') ─ I(t) ─ C
               t,0     t,1    u,0             t,0           t,1       ordinals
        └─────── layout t ────────────────────┘ └─ t' ─┘             relation versions

Of a transaction that was streamed while it ran, what its rolled-back subtransactions did is left out
before anything else, their layouts too: the server sends those again that still hold.

A TRUNCATE is no row change, but takes an ordinal of each table that it names; `truncations` finds them
without reading a row, for whoever has to know of them before the changes are read. The server names every
table that it emptied and that is published, so its flags (CASCADE, RESTART IDENTITY) say nothing more.

Changes of a partition that come under the name of its root stand behind its own layout, which is read for no
row: it shows which partition that is (`partitions`).

A relation that no longer has the columns that were recorded is a failure of its table at its time: a value,
not an exception, so that the other tables of the slice go on. What can't be read at all is raised: it
concerns the whole source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.conversion import Conversion, Take
from headrace.core.errors import Definite, ShapeChanged
from headrace.core.handoff import widen
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncation, Truncations
from headrace.decode.kernel import Bytes, Ints
from headrace.decode.pgoutput import BeginMessages, Messages, Relation, begins, relation, scan, truncate
from headrace.decode.pgoutput.batch import PgoutputChangeMeta, changes
from headrace.sources.contract.decoder import TableChanges, TableFailure, TableFilter
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import is_listed, is_root, tree_of, types_of
from headrace.sources.postgres.decode import labels
from headrace.sources.postgres.decode.context import PostgresOpenTransaction, PostgresStreamContext
from headrace.sources.postgres.types.columns import is_same_form, is_wider

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_RELATION, _TRUNCATE, _TYPE = ord("R"), ord("T"), ord("Y")
_FULL = "f"  # of a relation's identity


@dataclass(frozen=True, slots=True)
class _TableMessages:
    """The changes of one table that are wanted: the rows of their messages and their ordinals."""

    oid: int
    table_filter: TableFilter
    rows: Ints
    ordinals: Ints

    def part(self, low: int, high: int) -> _TableMessages:
        return _TableMessages(self.oid, self.table_filter, self.rows[low:high], self.ordinals[low:high])


@dataclass(frozen=True, slots=True)
class _Heads:
    """The head of the transaction that each message belongs to."""

    number: Ints
    time: Ints
    xid: Ints
    commit_ts: Ints


def decode(
    data: Bytes, context: PostgresStreamContext, tables: Mapping[int, TableFilter], reference: int
) -> Iterator[TableChanges | TableFailure]:
    """All changes of the wanted tables in `data`."""
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


def truncations(
    data: Bytes, context: PostgresStreamContext, tables: Mapping[int, int], reference: int
) -> dict[int, Truncations]:
    """Find the truncations of tables (by oid: the time from which on it matters) in `data`."""
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
    """For each table the messages that truncate it."""
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
    """The wire's 32 bits as a 64-bit id: the nearest to a recent one."""
    return int(_wide(np.array([xid], np.int64), reference)[0])


def _wide(xids: Ints, reference: int) -> Ints:
    low = pa.array((xids & 0xFFFFFFFF).astype(np.uint32))
    return np.asarray(widen(low, reference).to_numpy(), dtype=np.int64)


def _versions(
    data: Bytes, messages: Messages, known: Mapping[int, Relation]
) -> dict[int, list[tuple[int, Relation]]]:
    """For each table its layouts and the message from which each holds."""
    versions = {oid: [(-1, layout)] for oid, layout in known.items()}
    for row in np.flatnonzero(messages.kind == _RELATION):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        of_table = versions.setdefault(layout.oid, [])
        if not of_table or of_table[-1][1] != layout:  # each streamed transaction says them again
            of_table.append((int(row), layout))
    return versions


def _number_messages(
    messages: Messages,
    heads: _Heads,
    oid: int,
    emptied: Mapping[int, Ints],
    inside: PostgresOpenTransaction | None,
) -> tuple[Ints, Ints]:
    """The messages that change or truncate a table, in the order of the log, and their ordinals."""
    changed = np.isin(messages.kind, (_INSERT, _UPDATE, _DELETE)) & (messages.relation == oid)
    if oid in emptied:
        changed[emptied[oid]] = True
    rows = np.flatnonzero(changed)
    return rows, _ordinals(heads.number[rows], inside.ordinals.get(oid, 0) if inside else 0)


def _ordinals(transaction: Ints, before: int) -> Ints:
    """The number of each change within its transaction; the open one already had `before`."""
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
    """The table's changes, version by version of its layout."""
    if not len(taken.rows):
        return
    bounds = np.searchsorted(taken.rows, [row for row, _ in versions])
    if not versions or bounds[0] > 0:
        raise Definite(
            "PG_UNKNOWN_RELATION",
            f"the stream holds changes of {taken.table_filter.name} but not its layout",
            hint="report it; nothing is acknowledged until it can be read",
        )
    ends = [*bounds[1:], len(taken.rows)]
    for (_, layout), low, high in zip(versions, bounds, ends, strict=True):
        if low < high:
            yield _under(data, messages, heads, layout, taken.part(low, high))


def _foreign_rows(
    data: Bytes, messages: Messages, heads: _Heads, taken: _TableMessages
) -> TableFailure | None:
    """The failure of a root some of whose rows are of a partition that is not known to be whole."""
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
    """The layouts that stand right before these changes: of the partition, behind that of its root.

    The server says both, one behind the other, before the first change of the partition, and types between.
    """
    said = np.isin(messages.kind, (_RELATION, _TYPE))
    follows = np.flatnonzero(~said)
    rows = np.flatnonzero(messages.kind == _RELATION)
    at = np.searchsorted(follows, rows)
    there = at < len(follows)
    return rows[there][np.isin(follows[at[there]], changes)]


_NEAR = 1 << 24  # transactions: no longer ago than that began the one that attached a partition


def _partition_flaw(
    branch: Branch | None, layout: Relation, schema: TableSchema, xid: int, listed: bool
) -> str | None:
    """Say why rows of a partition may not be all that the root has of it.

    It is not there any more: its rows went without a message. It was written to by the transaction that put
    it there, or by one that is older: what TRUNCATE takes of it in there no file node tells. Or its old rows
    are of another identity than the root's layout says.
    """
    if branch is None:
        return "it is no partition any more"
    if 0 <= (branch.attached_by - xid) & 0xFFFFFFFF < _NEAR:
        return "the transaction that made it a partition wrote to it, and may have truncated it"
    if layout.identity == _FULL:
        return None
    # By a list the server chooses the columns of this layout by the numbers that they have in the root.
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
    found = changes(
        data,
        messages.take(rows),
        positions=np.array(way.places, np.int64),
        schema=wanted.schema,
        meta=PgoutputChangeMeta(
            time=heads.time[rows],
            ordinal=taken.ordinals,
            xid=heads.xid[rows],
            commit_ts=heads.commit_ts[rows],
        ),
        values=way.values,
    )
    if not labels.stand(found.batch, found.bad, wanted.details):
        return TableFailure(taken.oid, labels.renamed_error(wanted.name, int(heads.time[rows[0]])))
    return TableChanges(taken.oid, found.batch, found.bad)


def _way(layout: Relation, wanted: TableFilter, time: int) -> Conversion | None:
    """The way from rows of this layout to those of the table as it is recorded; None where none is known.

    The stream describes the table as the catalog did when it was copied, or as it was before a change that
    was followed. DDL that was taken back is seen here and nowhere else: names of columns that were
    exchanged for a while (so their order counts), another type, under which values are printed otherwise,
    another identity, whose old keys are not ours.
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
    """Tell whether a text under the given type is decoded as one under the recorded type, or a wider one."""
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
    """Layouts from their messages, whole frames as the spool keeps them; a later one wins."""
    data = np.frombuffer(b"".join(frames), np.uint8)
    messages = scan(data)
    known: dict[int, Relation] = {}
    for row in np.flatnonzero(messages.kind == _RELATION):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        known[layout.oid] = layout
    return known
