"""Ranges of an index: the parts in which a table is copied, each into files of its own.

    cuts     k1 < k2 < k3                      values of the key's first column, in the server's order
    pieces   key < k1 │ k1 <= key < k2 │ ...   the first is open to the left, the last to the right

All are read in one moment, so each row is in one of them, wherever it is moved meanwhile: what a value is
compared with does not change, and the order is the server's own for that column. Cuts only skew the work.
They are literals of SQL, as the driver had them from the server.

Cut by `measure`, read by `reader`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import pairwise

from headrace.core.names import TableName
from headrace.sources.contract.copying import Piece
from headrace.sources.contract.values import TableSize
from headrace.sources.mysql.session.statements import quote


@dataclass(frozen=True, slots=True)
class IndexRange:
    """The rows of a table from one value of its key's first column up to another; None is the end of all."""

    table: TableName
    mark: str  # what the server said of the table when it was measured: another one has another
    column: str | None  # the key's first; None: the whole table
    low: str | None
    high: str | None
    rows: int  # estimates, for progress and for the size of the file
    bytes: int


@dataclass(frozen=True, slots=True)
class Cuts:
    """The places where a table can be cut into parts of about the same size, few or many."""

    column: str | None = None
    literals: tuple[str, ...] = ()


def ranges(table: TableName, mark: str, size: TableSize, cuts: Cuts, target_bytes: int) -> list[IndexRange]:
    """Cut a table into ranges of about `target_bytes` each, as far as there are places to cut it."""
    places = len(cuts.literals) + 1
    count = max(1, min(places, round(size.bytes / target_bytes)))
    edges = [None, *(cuts.literals[places * k // count - 1] for k in range(1, count)), None]
    return [
        IndexRange(
            table=table,
            mark=mark,
            column=cuts.column,
            low=low,
            high=high,
            rows=size.rows * (k + 1) // count - size.rows * k // count,
            bytes=size.bytes * (k + 1) // count - size.bytes * k // count,
        )
        for k, (low, high) in enumerate(pairwise(edges))
    ]


def shares(pieces: Sequence[Piece], readers: int) -> list[list[Piece]]:
    """Deal pieces to the readers, about as many bytes to each; small tables come first in a share.

    A reader that is left out takes with it every table that it has a piece of: so a table is dealt as a
    whole, unless it is larger than a reader's part.
    """
    held: Counter[TableName] = Counter()
    for piece in pieces:
        held[piece.table] += piece.bytes
    part = sum(held.values()) / readers
    lots: dict[object, list[Piece]] = {}
    for number, piece in enumerate(pieces):
        lots.setdefault(piece.table if held[piece.table] <= part else number, []).append(piece)
    loads = [(0, number) for number in range(readers)]
    heapify(loads)
    dealt: list[list[Piece]] = [[] for _ in range(readers)]
    for lot in sorted(lots.values(), key=_bytes, reverse=True):
        load, number = loads[0]
        dealt[number] += lot
        # An empty table takes its time, too.
        heapreplace(loads, (load + _bytes(lot) + 1, number))
    return [sorted(share, key=lambda piece: held[piece.table]) for share in dealt if share]


def _bytes(pieces: Sequence[Piece]) -> int:
    return sum(piece.bytes for piece in pieces)


def where(piece: IndexRange, more: str = "") -> str:
    """The condition of a range, and one more."""
    limits = [more] if more else []
    if piece.column is not None:
        column = quote(piece.column)
        limits += [f"{column} >= {piece.low}"] if piece.low is not None else []
        limits += [f"{column} < {piece.high}"] if piece.high is not None else []
    return f" WHERE {' AND '.join(limits)}" if limits else ""


def range_number(pieces: Sequence[IndexRange]) -> str:
    """An expression for the number of the range, of all ranges of one table, that a row is in."""
    cases = [
        f"WHEN {quote(each.column or '')} < {each.high} THEN {number}"
        for number, each in enumerate(pieces)
        if each.high is not None
    ]
    return f"CASE {' '.join(cases)} ELSE {len(pieces) - 1} END" if cases else "0"
