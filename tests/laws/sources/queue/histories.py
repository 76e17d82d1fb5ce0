"""Histories of a server, as snapshots see them: transactions begin, commit, roll back, and are looked at.

A server gives xids in the order in which transactions write first. A snapshot has an end (`xmax`, behind the
newest that has ended), and lists those before it that run. Nothing here is a server: it is the rule by which
one makes snapshots, and `tests/integration/queue/test_ticks.py` holds ticks of a real one against the same
law.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from headrace.sources.queue.batch import TxidSnapshot

FIRST_XIDS = st.sampled_from([3, 1000, (1 << 32) - 5, (1 << 32) + 3, (5 << 32) - 2])


@dataclass
class History:
    """Committed transactions, and the snapshots that were taken meanwhile, the first before anything."""

    snapshots: list[TxidSnapshot]
    committed: dict[int, int] = field(default_factory=dict)  # the number of the first snapshot that shows it


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A history of up to forty steps; a few transactions run for as long as it lasts."""
    latest = draw(FIRST_XIDS)  # the newest that has ended
    running = set(range(latest + 1, latest + 1 + draw(st.integers(0, 3))))
    following = latest + 1 + len(running)
    history = History([_snapshot(running, latest)])
    for step in draw(st.lists(st.sampled_from("bbbccart"), max_size=40)):
        if step == "b":
            running.add(following)
            following += 1
        elif step == "t":
            history.snapshots.append(_snapshot(running, latest))
        elif running:
            xid = draw(st.sampled_from(sorted(running)))
            running.discard(xid)
            latest = max(latest, xid)
            if step != "a":
                history.committed[xid] = len(history.snapshots)
    history.snapshots.append(_snapshot(running, latest))
    return history


def _snapshot(running: set[int], latest: int) -> TxidSnapshot:
    """A snapshot ends behind the newest xid that has ended: what runs beyond that is not even listed."""
    listed = tuple(sorted(xid for xid in running if xid <= latest))
    return TxidSnapshot(min(listed, default=latest + 1), latest + 1, listed)
