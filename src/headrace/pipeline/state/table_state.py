"""The states of a mirrored table: which state follows from which event, and what each state means.

                copied             caught up             exact
      PENDING ──────────► CATCHING UP ──────► JOINING ──────────► LIVE            a table
       ▲ ▲  └── lacking ◄──────┴──── lacking ────┤
       │ │                                       └── comparable ─► READY          a new copy of one
       │ └─────── taken up, from LIVE and from STOPPED
      ABSENT ◄─── dropped, from everywhere
                  failed, from everywhere but here ──► STOPPED

    ABSENT       it is not chosen yet, or it was dropped: the catalog has no record of it
    PENDING      it waits for its copy, or is being copied: no mark names a copy that is not complete
    CATCHING UP  its copy is in the lake, and it applies the kept stream, a portion at a time
    JOINING      it follows the stream with the others; the stream has yet to pass the point from which the
                 table is exact
    LIVE         it is exact, and marks name it
    STOPPED      it keeps its rows, and older marks still name it

If a copy in chunks turns out to lack a value (`core.chunks`), the table is PENDING again, without that chunk.
A table that is taken up has other columns than before: it waits for a copy again, and leaves the marks until
then.

A new copy of a table (`resync.replacement`) has states of its own beside the table's. READY, it is exact and
can be compared; at the next mark the new copy is gone, and its table is RECONCILED, from whatever state.

`TRANSITIONS` and `MEANINGS` hold all of this, and no other code does. Code that decides something about a
table asks its state: `record.state.follows`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """A stage in the life of a table, or of a new copy of one."""

    ABSENT = "absent"
    PENDING = "pending"
    CATCHING_UP = "catching_up"
    JOINING = "joining"
    LIVE = "live"
    READY = "ready"
    STOPPED = "stopped"

    @property
    def awaits_copy(self) -> bool:
        """Tell whether it waits for its copy, or is being copied."""
        return MEANINGS[self].awaits_copy

    @property
    def keeps_stream(self) -> bool:
        """Tell whether each epoch of the stream keeps the table's part of it (`stream.late_stream`)."""
        return MEANINGS[self].keeps_stream

    @property
    def follows(self) -> bool:
        """Tell whether epochs apply the stream to it: it stands where the source stands."""
        return MEANINGS[self].follows

    @property
    def asks_handoff(self) -> bool:
        """Tell whether each transaction needs the test of its handoff, since the copy may hold it."""
        return MEANINGS[self].asks_handoff

    @property
    def has_rows(self) -> bool:
        """Tell whether the lake has a whole copy of it."""
        return MEANINGS[self].has_rows

    @property
    def is_named(self) -> bool:
        """Tell whether marks name it."""
        return MEANINGS[self].is_named

    @property
    def is_settled(self) -> bool:
        """Tell whether a run that catches up has nothing left to wait for."""
        return MEANINGS[self].is_settled

    @property
    def may_resync(self) -> bool:
        """Tell whether a user may ask for a new copy of it: not while it is being copied."""
        return MEANINGS[self].may_resync

    @property
    def is_published(self) -> bool:
        """Tell whether it belongs in the source's publication."""
        return MEANINGS[self].is_published


class TableEvent(Enum):
    """An event in the life of a table."""

    CHOSEN = "chosen"
    COPIED = "copied"
    CAUGHT_UP = "caught up"
    LACKING = "lacking"
    EXACT = "exact"
    COMPARABLE = "comparable"
    BEGUN_ANEW = "begun anew"
    RECONCILED = "reconciled"
    TAKEN_UP = "taken up"
    FAILED = "failed"
    DROPPED = "dropped"


class CannotHappen(AssertionError):
    """An event that is impossible in this state: a bug, and no way to go on."""

    def __init__(self, state: State, event: TableEvent) -> None:
        super().__init__(f'"{event.value}" cannot happen to a table that is "{state.value}"')


TRANSITIONS: Mapping[State, Mapping[TableEvent, State]] = {
    State.ABSENT: {
        TableEvent.CHOSEN: State.PENDING,
    },
    State.PENDING: {
        TableEvent.COPIED: State.CATCHING_UP,
        TableEvent.BEGUN_ANEW: State.PENDING,
        TableEvent.RECONCILED: State.LIVE,
        TableEvent.FAILED: State.STOPPED,
        TableEvent.DROPPED: State.ABSENT,
    },
    State.CATCHING_UP: {
        TableEvent.CAUGHT_UP: State.JOINING,
        TableEvent.LACKING: State.PENDING,
        TableEvent.BEGUN_ANEW: State.PENDING,
        TableEvent.RECONCILED: State.LIVE,
        TableEvent.FAILED: State.STOPPED,
        TableEvent.DROPPED: State.ABSENT,
    },
    State.JOINING: {
        TableEvent.EXACT: State.LIVE,
        TableEvent.COMPARABLE: State.READY,
        TableEvent.LACKING: State.PENDING,
        TableEvent.BEGUN_ANEW: State.PENDING,
        TableEvent.RECONCILED: State.LIVE,
        TableEvent.FAILED: State.STOPPED,
        TableEvent.DROPPED: State.ABSENT,
    },
    State.LIVE: {
        TableEvent.RECONCILED: State.LIVE,
        TableEvent.TAKEN_UP: State.PENDING,
        TableEvent.FAILED: State.STOPPED,
        TableEvent.DROPPED: State.ABSENT,
    },
    State.READY: {
        TableEvent.FAILED: State.STOPPED,
        TableEvent.DROPPED: State.ABSENT,
    },
    State.STOPPED: {
        TableEvent.RECONCILED: State.LIVE,
        TableEvent.TAKEN_UP: State.PENDING,
        TableEvent.FAILED: State.STOPPED,  # for another reason: it stays where it stopped
        TableEvent.DROPPED: State.ABSENT,
    },
}


@dataclass(frozen=True, slots=True)
class Meaning:
    """The decisions that rest on a state; the properties of `State` explain them."""

    awaits_copy: bool = False
    keeps_stream: bool = False
    follows: bool = False
    asks_handoff: bool = False
    has_rows: bool = False
    is_named: bool = False
    is_settled: bool = False
    may_resync: bool = False
    is_published: bool = True


MEANINGS: Mapping[State, Meaning] = {
    State.ABSENT: Meaning(is_published=False),
    State.PENDING: Meaning(awaits_copy=True, keeps_stream=True),
    State.CATCHING_UP: Meaning(keeps_stream=True, asks_handoff=True, has_rows=True),
    State.JOINING: Meaning(follows=True, asks_handoff=True, has_rows=True),
    State.LIVE: Meaning(follows=True, has_rows=True, is_named=True, is_settled=True, may_resync=True),
    State.READY: Meaning(follows=True, has_rows=True),
    State.STOPPED: Meaning(has_rows=True, is_settled=True, may_resync=True, is_published=False),
}


def after(state: State, event: TableEvent) -> State:
    """Return the state that follows; an event that cannot happen in this state is a bug."""
    following = TRANSITIONS[state].get(event)
    if following is None:
        raise CannotHappen(state, event)
    return following
