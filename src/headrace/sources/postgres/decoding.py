"""From a stretch of the stream to change batches, one table at a time.

A stretch is the raw bytes of whole transactions (or of a piece of a very large one, with the
transaction's head given beside it). Each change gets the time, xid and commit timestamp of the BEGIN
before it, and its ordinal: its number within its transaction and table, in log order.

    B ─ R(t) ─ I(t) ─ U(t) ─ I(u) ─ C   B ─ U(t) ─ R(t') ─ I(t) ─ C
               t,0     t,1    u,0             t,0           t,1       ordinals
        └─────── layout t ────────────────────┘ └─ t' ─┘             relation versions

A relation that no longer has the columns that were recorded, and a TRUNCATE, are failures of their
table at their time: values, not exceptions, so that the other tables of the stretch go on. What can't
be read at all is raised: it concerns the whole source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.core.errors import Definite
from headrace.core.handoff import widen
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.decode.pgoutput import (
    Begins,
    ChangeMeta,
    Changes,
    Messages,
    Relation,
    begins,
    changes,
    relation,
    scan,
    truncate,
)

_INSERT, _UPDATE, _DELETE = ord("I"), ord("U"), ord("D")
_RELATION, _TRUNCATE = ord("R"), ord("T")
_FULL = "f"  # of a relation's identity

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A table that the caller wants: updates with a time below `since` are left out."""

    name: TableName
    schema: TableSchema
    since: int


@dataclass(frozen=True, slots=True)
class Inside:
    """The transaction in whose middle the stretch begins, with the changes each table had before."""

    time: int
    xid: int
    commit_ts: int
    ordinals: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class TableChanges:
    """The changes of one table under one relation version, or why its changes can't be taken."""

    oid: int
    changes: Changes | None = None
    failure: Definite | None = None


@dataclass(frozen=True, slots=True)
class _Taken:
    """The changes of one table that are wanted: the rows of their messages and their ordinals."""

    oid: int
    wanted: Wanted
    rows: Ints
    ordinals: Ints

    def part(self, low: int, high: int) -> _Taken:
        return _Taken(self.oid, self.wanted, self.rows[low:high], self.ordinals[low:high])


@dataclass(frozen=True, slots=True)
class _Heads:
    """The head of the transaction that each message belongs to."""

    number: Ints
    time: Ints
    xid: Ints
    commit_ts: Ints


def decode(
    data: Bytes,
    relations: Mapping[int, Relation],
    tables: Mapping[int, Wanted],
    *,
    inside: Inside | None,
    xid_reference: int,
) -> Iterator[TableChanges]:
    """All changes of the wanted tables in `data`; `relations` are in force at its start."""
    messages = scan(data)
    heads = _heads(begins(data, messages), len(messages), inside, xid_reference)
    versions = _versions(data, messages, relations)
    yield from _truncated(data, messages, heads, tables)
    is_change = np.isin(messages.kind, (_INSERT, _UPDATE, _DELETE))
    for oid, wanted in tables.items():
        rows = np.flatnonzero(is_change & (messages.relation == oid))
        ordinals = _ordinals(heads.number[rows], inside.ordinals.get(oid, 0) if inside else 0)
        new = heads.time[rows] >= wanted.since
        taken = _Taken(oid, wanted, rows[new], ordinals[new])
        yield from _of_table(data, messages, heads, versions.get(oid, []), taken)


def _heads(found: Begins, count: int, inside: Inside | None, reference: int) -> _Heads:
    number = np.searchsorted(found.row, np.arange(count), side="right") - 1
    before = inside or Inside(-1, 0, 0, {})

    def each(values: Ints, first: int) -> Ints:
        return np.concatenate([np.array([first], np.int64), values])[number + 1]

    return _Heads(
        number=number,
        time=each(found.commit_lsn, before.time),
        xid=_wide(each(found.xid, before.xid), reference),
        commit_ts=each(found.commit_ts, before.commit_ts),
    )


def _wide(xids: Ints, reference: int) -> Ints:
    """The wire's 32 bits as 64-bit ids: the nearest to a recent one."""
    low = pa.array((xids & 0xFFFFFFFF).astype(np.uint32))
    return np.asarray(widen(low, reference).to_numpy(), dtype=np.int64)


def _versions(
    data: Bytes, messages: Messages, known: Mapping[int, Relation]
) -> dict[int, list[tuple[int, Relation]]]:
    """For each table its layouts and the message from which each holds."""
    versions = {oid: [(-1, layout)] for oid, layout in known.items()}
    for row in np.flatnonzero(messages.kind == _RELATION):
        layout = relation(data, int(messages.body[row]), int(messages.stop[row]))
        versions.setdefault(layout.oid, []).append((int(row), layout))
    return versions


def _ordinals(transaction: Ints, before: int) -> Ints:
    """The number of each change within its transaction; the open one already had `before`."""
    order = np.arange(len(transaction))
    starts = np.searchsorted(transaction, transaction, side="left")
    return order - starts + np.where(transaction == -1, before, 0)


def _truncated(
    data: Bytes, messages: Messages, heads: _Heads, tables: Mapping[int, Wanted]
) -> Iterator[TableChanges]:
    for row in np.flatnonzero(messages.kind == _TRUNCATE):
        for oid in truncate(data, int(messages.body[row]), int(messages.stop[row])).oids:
            wanted = tables.get(oid)
            if wanted is not None and heads.time[row] >= wanted.since:
                failure = Definite(
                    "PG_TRUNCATED",
                    f"{wanted.name} was truncated",
                    detail=f"in the transaction at {int(heads.time[row]):X}",
                    hint="`headrace run` into a new lake copies it anew",
                )
                yield TableChanges(oid, failure=failure)


def _of_table(
    data: Bytes,
    messages: Messages,
    heads: _Heads,
    versions: list[tuple[int, Relation]],
    taken: _Taken,
) -> Iterator[TableChanges]:
    """The table's changes, version by version of its layout."""
    if not len(taken.rows):
        return
    bounds = np.searchsorted(taken.rows, [row for row, _ in versions])
    if not versions or bounds[0] > 0:
        raise Definite(
            "PG_UNKNOWN_RELATION",
            f"the stream holds changes of {taken.wanted.name} but not its layout",
            hint="report it; nothing is acknowledged until it can be read",
        )
    ends = [*bounds[1:], len(taken.rows)]
    for (_, layout), low, high in zip(versions, bounds, ends, strict=True):
        if low < high:
            yield _under(data, messages, heads, layout, taken.part(low, high))


def _under(data: Bytes, messages: Messages, heads: _Heads, layout: Relation, taken: _Taken) -> TableChanges:
    wanted, rows = taken.wanted, taken.rows
    if not _as_recorded(layout, wanted):
        return TableChanges(taken.oid, failure=_altered(wanted, int(heads.time[rows[0]])))
    found = changes(
        data,
        messages.take(rows),
        positions=np.arange(len(layout.columns), dtype=np.int64),
        schema=wanted.schema,
        meta=ChangeMeta(
            time=heads.time[rows],
            ordinal=taken.ordinals,
            xid=heads.xid[rows],
            commit_ts=heads.commit_ts[rows],
        ),
    )
    return TableChanges(taken.oid, changes=found)


def _as_recorded(layout: Relation, wanted: Wanted) -> bool:
    """Whether the stream describes the table as the catalog did when it was copied.

    DDL that was taken back is seen here and nowhere else: names of columns that were exchanged for a
    while (so their order counts), another identity, whose old keys are not ours.
    """
    schema = wanted.schema
    told = tuple(column.name for column in layout.columns)
    identity = {column.name for column in layout.columns if column.in_identity}
    return (
        told == schema.names
        and TableName(layout.namespace or "pg_catalog", layout.name) == wanted.name
        and (layout.identity == _FULL) == schema.full
        and (schema.full or identity == set(schema.key))
    )


def _altered(wanted: Wanted, time: int) -> Definite:
    return Definite(
        "TABLE_ALTERED",
        f"{wanted.name} does not have the columns and the identity that were recorded",
        detail=f"seen in the transaction at {time:X}",
        hint="`headrace run` into a new lake copies it as it is now",
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
