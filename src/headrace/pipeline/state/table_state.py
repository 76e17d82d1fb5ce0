"""The life of a mirrored table, as a table.

                copied              exact
      CHOSEN ───────────► JOINING ─────────► LIVE
        │   ◄─────────────   │                 │
        │        lacking     │                 │
        └────── failed ──────┴─────────────────┴──► STOPPED

A table is named by marks only while it is LIVE. A CHOSEN one is waiting for its copy or being copied: a
copy that is not complete is named by no mark, so there is no state for it. JOINING means that the copy is
in the lake and the stream has not yet reached the point from which it is exact. A copy in chunks may then
turn out to lack a value (`core.chunks`), and is CHOSEN again without the chunk concerned. STOPPED keeps what
it had: older marks still name it.
"""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a table is in its life."""

    CHOSEN = "chosen"
    JOINING = "joining"
    LIVE = "live"
    STOPPED = "stopped"


ATTACHED = (State.JOINING, State.LIVE)  # the stream is applied to these


class Event(Enum):
    """What can happen to a table."""

    COPIED = "copied"
    LACKING = "lacking"
    EXACT = "exact"
    RECONCILED = "reconciled"
    FAILED = "failed"


TRANSITIONS: dict[tuple[State, Event], State] = {
    (State.CHOSEN, Event.COPIED): State.JOINING,
    (State.CHOSEN, Event.FAILED): State.STOPPED,
    (State.JOINING, Event.EXACT): State.LIVE,
    (State.JOINING, Event.LACKING): State.CHOSEN,
    (State.JOINING, Event.FAILED): State.STOPPED,
    (State.LIVE, Event.FAILED): State.STOPPED,
    (State.CHOSEN, Event.RECONCILED): State.LIVE,
    (State.JOINING, Event.RECONCILED): State.LIVE,
    (State.LIVE, Event.RECONCILED): State.LIVE,
    (State.STOPPED, Event.RECONCILED): State.LIVE,
}


def after(state: State, event: Event) -> State:
    """The state that follows; an event that cannot happen in this state is a bug."""
    try:
        return TRANSITIONS[state, event]
    except KeyError:
        raise AssertionError(f"{event} cannot happen to a table that is {state}") from None
