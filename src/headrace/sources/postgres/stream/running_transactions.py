"""Transactions that are streamed while they run: their bytes, and how each of them ends.

A large transaction comes in blocks before it has ended, and the blocks of several may alternate. Their bytes
are returned by transaction:

    buffer    B..C  S(7) I I E  S(9) I E  B..C  S(7) I A(7,8) I E  c(7)  A(9,9)
    7         ....       I I                         I        I    ended: without what 8 did
    9                           I                                        forgotten

A(7, 8) rolls back subtransaction 8 of 7, A(9, 9) all of 9; an A of an unknown transaction means nothing new.
A table layout that came in a block holds for its transaction. It holds for later whole transactions only if
that one commits: by the same rule the server remembers which layouts it has sent.

All of this state dies with the connection: then the server streams the transactions again, and not always in
the same way.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headrace.core.errors import Definite
from headrace.decode import pgoutput
from headrace.decode.kernel import Bytes

START, STOP, COMMIT, ABORT = ord("S"), ord("E"), ord("c"), ord("A")
CHANGES = np.zeros(256, np.int64)
CHANGES[list(b"IUDT")] = 1
RELATION, TRUNCATE = ord("R"), ord("T")
_NOTHING: Bytes = np.empty(0, np.uint8)


@dataclass(slots=True)
class _Transaction:
    """One transaction in progress."""

    # Each turn of a loop with an exception block is a subtransaction, so keep only a few bytes for each.
    doers: array[int] = field(default_factory=lambda: array("I"))  # which subtransactions made changes,
    changes: array[int] = field(default_factory=lambda: array("I"))  # and how many
    truncates: int = 0  # rolled back or not
    aborted_parts: array[int] = field(default_factory=lambda: array("I"))
    layouts: dict[tuple[int, int], bytes] = field(default_factory=dict)  # by subtransaction and table

    def did(self, subtransaction: int, changes: int) -> None:
        """Add changes of a subtransaction."""
        if self.doers and self.doers[-1] == subtransaction:
            self.changes[-1] += changes
        else:
            self.doers.append(subtransaction)
            self.changes.append(changes)

    def lasting(self) -> int:
        """Count the changes that were not rolled back."""
        gone = np.isin(np.array(self.doers, np.int64), np.array(self.aborted_parts, np.int64))
        return int(np.array(self.changes, np.int64)[~gone].sum())


@dataclass(frozen=True, slots=True)
class StreamedCommit:
    """A transaction that has committed: the message that says so, and what is known of it by then."""

    row: int
    xid: int
    changes: int
    truncates: int
    aborted_parts: Sequence[int]
    layouts: dict[int, bytes]


@dataclass(slots=True)
class _Buffer:
    """The part of one buffer that belongs to running transactions."""

    contents: dict[int, list[Bytes]] = field(default_factory=dict)  # by transaction, also where nothing came
    rolled_back: list[int] = field(default_factory=list)  # rolled back
    commits: list[StreamedCommit] = field(default_factory=list)

    def bytes(self) -> dict[int, Bytes]:
        return {xid: _join(parts) for xid, parts in self.contents.items()}


class Running:
    """The streamed transactions of one session that have not ended."""

    def __init__(self) -> None:
        self._open: dict[int, _Transaction] = {}
        self._block: int | None = None  # whose block the last buffer ended in

    def take(self, data: Bytes, messages: pgoutput.Messages) -> _Buffer:
        """Take the part of a buffer that belongs to running transactions."""
        found = _Buffer()
        begin = 0
        for row in np.flatnonzero(np.isin(messages.kind, (START, STOP, COMMIT, ABORT))).tolist():
            kind = messages.kind[row]
            if kind == START:
                self._block = self._begin(data, messages, row, found)
                begin = row + 1
            elif kind == STOP:
                self._content(data, messages, begin, row, found)
                self._block = None
            elif kind == COMMIT:
                found.commits.append(self._end(int(messages.xid[row]), row))
            else:
                self._take_back(data, messages, row, found)
        self._content(data, messages, begin, len(messages), found)
        return found

    def _begin(self, data: Bytes, messages: pgoutput.Messages, row: int, found: _Buffer) -> int:
        """A block begins: the first of its transaction, or a further one."""
        xid = int(messages.xid[row])
        first = bool(data[messages.body[row] + 4])
        if first == (xid in self._open):
            raise disorder("a streamed transaction that does not go on where it was")
        if first:
            self._open[xid] = _Transaction()
            found.contents.setdefault(xid, [])
        return xid

    def _content(
        self, data: Bytes, messages: pgoutput.Messages, begin: int, end: int, found: _Buffer
    ) -> None:
        """The messages of a block, or of the part of it that this buffer has."""
        if self._block is None or begin == end:
            return
        transaction = self._open[self._block]
        kinds, subtransactions = messages.kind[begin:end], messages.xid[begin:end]
        changed = subtransactions[CHANGES[kinds] == 1]
        for xid, count in zip(*np.unique(changed, return_counts=True), strict=True):
            transaction.did(int(xid), int(count))
        transaction.truncates += int(np.count_nonzero(kinds == TRUNCATE))
        for row in (begin + np.flatnonzero(kinds == RELATION)).tolist():
            body = data[messages.body[row] : messages.stop[row]].tobytes()
            layout = pgoutput.alone(RELATION, body)
            transaction.layouts.pop(mine := (int(messages.xid[row]), int(messages.relation[row])), None)
            transaction.layouts[mine] = layout
        part = data[messages.frame_start[begin] : messages.stop[end - 1]]
        found.contents.setdefault(self._block, []).append(part)

    def _take_back(self, data: Bytes, messages: pgoutput.Messages, row: int, found: _Buffer) -> None:
        said = pgoutput.stream_abort(data, int(messages.body[row]), int(messages.stop[row]))
        transaction = self._open.get(said.xid)
        if transaction is None:
            return
        if said.subxid == said.xid:
            del self._open[said.xid]
            found.contents.pop(said.xid, None)
            found.rolled_back.append(said.xid)
            return
        transaction.aborted_parts.append(said.subxid)
        for key in [key for key in transaction.layouts if key[0] == said.subxid]:
            del transaction.layouts[key]

    def _end(self, xid: int, row: int) -> StreamedCommit:
        transaction = self._open.pop(xid, None)
        if transaction is None:
            raise disorder("the commit of a streamed transaction that never came")
        return StreamedCommit(
            row,
            xid,
            transaction.lasting(),
            transaction.truncates,
            transaction.aborted_parts,
            {oid: layout for (_, oid), layout in transaction.layouts.items()},
        )


def _join(parts: list[Bytes]) -> Bytes:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else _NOTHING


def disorder(what: str) -> Definite:
    """The error of a stream that no server of the protocol sends."""
    return Definite(
        "PG_STREAM_DISORDERED",
        "the replication stream breaks the rules of its protocol",
        detail=what,
        hint="report it with the server's version; nothing is acknowledged until it can be read",
    )
