"""Rewind and skip: the two exact ways to join a snapshot to a stream that started before it.

The contents at a time are the sum of all updates up to it. Hence, for a stream that is complete from
`start` on, and a snapshot that holds the transactions H:

    contents(start)  =  contents(snapshot)  -  sum(updates that start does not cover, of H)

                 start                                 snapshot
      ─────────────┼──────────────────────────────────────┼───────────►  stream
                   │◄── updates of H, negated ────────────┤
                   contents(start)                        contents(snapshot)

The right side is known: the copy, and the stream. So a table can be had as it was at the start of the
stream, whatever moment it was copied at (`rewind`), as often as it is copied, and always the same. H need
not be a prefix of the stream: a handoff by xid holds later commits and not earlier ones, and the sum does
not mind. It needs whole before-images; where there are none, the held transactions are dropped from the
stream instead (`skip`), and the table begins at the snapshot.

With no handoff `rewind` is time travel: a mark holds everything up to its frontier, and what the history
says that came after `start` is taken away again.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.collection import TIME, check_counts, consolidate, negate
from headrace.core.handoff import Handoff
from headrace.core.position import Position

TRANSACTION = "_transaction"


def rewind(
    snapshot: pa.Table, updates: pa.Table, start: Position, handoff: Handoff | None = None
) -> pa.Table:
    """The contents at `start`, from those of a later moment and all updates since `start`.

    `updates` are rows, `_time`, `_diff` and, for a handoff that asks for it, the name of the transaction
    (`_transaction`: a top-level xid, or a GTID); those that `start` covers may be among them and change
    nothing. Without a handoff the snapshot holds all updates given.
    """
    since = updates.filter(pc.invert(start.mask(updates.column(TIME))))
    known = since if handoff is None else since.filter(_holds(since, handoff))
    undone = negate(known).select(snapshot.column_names)
    return check_counts(consolidate(pa.concat_tables([snapshot, undone.cast(snapshot.schema)])))


def skip(updates: pa.Table, handoff: Handoff) -> pa.Table:
    """The updates that the snapshot does not hold yet."""
    return updates.filter(pc.invert(_holds(updates, handoff)))


def _holds(updates: pa.Table, handoff: Handoff) -> pa.BooleanArray:
    named = TRANSACTION in updates.column_names
    xids = updates.column(TRANSACTION) if named else pa.nulls(updates.num_rows, pa.int64())
    return handoff.holds(updates.column(TIME), xids)
