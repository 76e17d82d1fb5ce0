"""A small source database whose whole past is known: what the laws of folding are held against.

A world is a table `(id, a, big)` with a key, a start state, and transactions that were really carried out
on a dict. From it come the exact history and all states in between (the truth), and the change batch that
a server would send of it: with whole old rows or with keys only, and often without `big` where it did not
change (as PostgreSQL leaves out TOASTed values).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from headrace.core.change_batch import Image, Op, change_schema
from headrace.core.schema import Column, TableSchema
from headrace.core.transaction_id import TransactionId
from headrace.core.truncation import Truncation, Truncations

Row = tuple[int, int | None, str | None]
Side = tuple[int, int, int, Row]  # transaction, ordinal, diff, row

COLUMNS = (
    Column("id", pa.int32(), "int", "integer", nullable=False),
    Column("a", pa.int64(), "int", "bigint"),
    Column("big", pa.string(), "text", "text"),
)
KEYED = TableSchema(COLUMNS, ("id",), full=False)
FULL = TableSchema(COLUMNS, ("id",), full=True)
BAG = TableSchema(COLUMNS, (), full=True)


@dataclass(frozen=True)
class Change:
    """One change as it happened."""

    op: Op | None  # None: the table is truncated
    old: Row | None
    new: Row | None
    sent: bool  # the new value of `big` was sent, though it may be the old one


TRUNCATE = Change(None, None, None, sent=True)


@dataclass
class World:
    """The start state, the transactions, and the state after each of them."""

    start: dict[int, Row]
    transactions: list[list[Change]] = field(default_factory=list)
    states: list[dict[int, Row]] = field(default_factory=list)

    @property
    def end(self) -> dict[int, Row]:
        return self.states[-1] if self.states else self.start

    def history(self, first: int = 0) -> list[Side]:
        """Every side of every change, in order."""
        sides: list[Side] = []
        for number, changes in enumerate(self.transactions[first:], first):
            for ordinal, change in enumerate(changes):
                sides += [(number, ordinal, -1, change.old)] if change.old else []
                sides += [(number, ordinal, 1, change.new)] if change.new else []
        return sides

    def keys(self, number: int) -> set[int]:
        """The keys that a transaction touched."""
        rows = [row for c in self.transactions[number] for row in (c.old, c.new) if row]
        return {row[0] for row in rows}


def changes(world: World, schema: TableSchema, numbers: Sequence[int]) -> pa.Table:
    """The change batch that a server sends for these transactions."""
    records: list[dict[str, Any]] = []
    for number in numbers:
        for ordinal, change in enumerate(world.transactions[number]):
            if change.op is not None:
                records.append(_record(schema, number, ordinal, change))
    return pa.Table.from_pylist(records, change_schema(schema, (2,)))


def truncations(world: World, numbers: Sequence[int], schema: TableSchema = KEYED) -> Truncations:
    """The truncations in these transactions."""
    return tuple(
        Truncation(time_of(number), ordinal, name_of(schema, number), number)
        for number in numbers
        for ordinal, change in enumerate(world.transactions[number])
        if change.op is None
    )


def _record(schema: TableSchema, number: int, ordinal: int, change: Change) -> dict[str, Any]:
    old, new = change.old, change.new
    moved = old is not None and new is not None and old[0] != new[0]
    if schema.full:
        image = Image.FULL if old else Image.NONE
    else:
        image = Image.KEY if moved or change.op == Op.DELETE else Image.NONE
    record: dict[str, Any] = {
        "_time": time_of(number),
        "_ordinal": ordinal,
        "_transaction": name_of(schema, number),
        "_commit_ts": number,
        "_op": change.op,
        "_image": image,
    }
    hole = change.op == Op.UPDATE and not change.sent
    if new:
        record |= {"n0": new[0], "n1": new[1], "n2": None if hole else new[2]}
    if old and image != Image.NONE:
        record |= {"o0": old[0]} | ({"o1": old[1], "o2": old[2]} if schema.full else {})
    return record | {"u2": hole}


def change_schema_of(schema: TableSchema) -> pa.Schema:
    """The batch of a source that sends every row whole."""
    return change_schema(schema)


def side_record(number: int, ordinal: int, diff: int, row: Row) -> dict[str, Any]:
    """A whole row that came or went, as a source sends it that captures by statement."""
    came = diff > 0
    values = {f"{'n' if came else 'o'}{index}": value for index, value in enumerate(row)}
    return {
        "_time": time_of(number),
        "_ordinal": ordinal,
        "_transaction": 100 + number,
        "_commit_ts": number,
        "_op": Op.INSERT if came else Op.DELETE,
        "_image": Image.NONE if came else Image.FULL,
        **values,
    }


def time_of(number: int) -> int:
    return 1000 + 10 * number


def name_of(schema: TableSchema, number: int) -> int | str:
    """The name of a transaction, as the source of such tables has them."""
    return 100 + number if schema.transaction is TransactionId.XID else f"u:{100 + number}"


def table(rows: Sequence[Row]) -> pa.Table:
    """Rows as the lake holds them."""
    columns = [pa.array([row[i] for row in rows], c.type) for i, c in enumerate(COLUMNS)]
    return pa.Table.from_arrays(columns, schema=KEYED.arrow())


def rows(found: pa.Table) -> list[Row]:
    """The rows of a table of ours."""
    return [(r["id"], r["a"], r["big"]) for r in found.to_pylist()]


def sides(history: pa.Table) -> list[Side]:
    """The sides of a table of history."""
    return [
        ((r["_time"] - 1000) // 10, r["_ordinal"], r["_diff"], (r["id"], r["a"], r["big"]))
        for r in history.to_pylist()
    ]


TEXTS = st.sampled_from([None, "", "x", "y" * 30, "z"])
NUMBERS = st.one_of(st.none(), st.integers(-3, 3))


@st.composite
def worlds(
    draw: st.DrawFn, min_transactions: int = 0, most_changes: int = 4, truncates: bool = False
) -> World:
    """A world in which few keys live often: they are deleted, come again, move, swap and chain."""
    start = {key: (key, draw(NUMBERS), draw(TEXTS)) for key in draw(st.sets(st.integers(0, 5), max_size=4))}
    world = World(dict(start))
    state = dict(start)
    for _ in range(draw(st.integers(min_transactions, 7))):
        done = [draw(_change(state, truncates)) for _ in range(draw(st.integers(1, most_changes)))]
        world.transactions.append([change for change in done if change is not None])
        world.states.append(dict(state))
    return world


@st.composite
def _change(draw: st.DrawFn, state: dict[int, Row], truncates: bool) -> Change | None:
    """Carry out one change on the state. (Drawing is the side effect that counts here.)"""
    if truncates and draw(st.integers(0, 4)) == 0:
        state.clear()
        return TRUNCATE
    free = [key for key in range(8) if key not in state]
    wanted = draw(st.sampled_from(["insert", "update", "update", "move", "move", "delete"]))
    if wanted == "insert" or not state:
        new: Row = (draw(st.sampled_from(free)), draw(NUMBERS), draw(TEXTS)) if free else (0, None, None)
        if not free:
            return None
        state[new[0]] = new
        return Change(Op.INSERT, None, new, sent=True)
    old = state.pop(draw(st.sampled_from(sorted(state))))
    if wanted == "delete":
        return Change(Op.DELETE, old, None, sent=False)
    key = draw(st.sampled_from(free)) if wanted == "move" and free else old[0]
    sent = draw(st.booleans())
    new = (key, draw(NUMBERS), draw(TEXTS) if sent else old[2])
    state[key] = new
    return Change(Op.UPDATE, old, new, sent)


def with_copies(world: World) -> World:
    """Take the key from a world, so that rows are there several times."""

    def blur(row: Row) -> Row:
        return (row[0] % 2, row[1] and row[1] % 2, row[2])

    def blurred(change: Change) -> Change:
        old, new = change.old and blur(change.old), change.new and blur(change.new)
        return replace(change, old=old, new=new)

    return World(
        {key: blur(row) for key, row in world.start.items()},
        [[blurred(change) for change in some] for some in world.transactions],
        [{key: blur(row) for key, row in state.items()} for state in world.states],
    )
