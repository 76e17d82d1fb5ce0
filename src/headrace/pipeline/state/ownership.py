"""The ownership of a source of a lake: one `run` at a time.

The lake's commit protocol keeps a second writer from doing harm (`lake.log.commit`: the newer one wins, the
older one's next plan fails). That is enough for safety. This module adds a refusal: a second `run` on a
source whose owner is alive gets an error instead of the source.

An owner writes the status record about once a second, into a bucket every eight. It is alive if its record
changes while we watch, by our own clock alone: two hosts may disagree about the time. A process on this
machine, with the same clock, needs no watching: it is gone, or it wrote a moment ago.

The owner also repairs what a power cut left (`lake.log.recovery`). A run does so before it reads any state of
its source; a command, if no living run owns the source. A reader never does: its error says that a run will.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.lake.format import placefile, statusfile
from headrace.lake.format.status import SourceStatus
from headrace.lake.log import recovery
from headrace.lake.store.contract import Store
from headrace.spool.process import is_beside, runs

FRESH_SECONDS = 20.0
HEARD_SECONDS = (
    2.0  # beyond an owner's silence, in a lake that lies elsewhere than it did: its error is due soon
)
POLL_SECONDS = 0.2
ENDED = ("stopped", "failed", "dropped")


def claim(store: Store, source: str, me: Mapping[str, Any]) -> None:
    """Raise if somebody else owns the source and is alive."""
    owner = living_owner(store, source, me)
    if owner is not None:
        raise Misconfigured(
            "SOURCE_OWNED",
            f'source "{source}" of this lake is run by another process',
            detail=f"pid {owner.get('pid')} on {owner.get('host')}",
            hint="stop that one first; `headrace status` shows what it does",
        )


def living_owner(store: Store, source: str, me: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Find the living owner of the source other than `me`, if any; this may take `FRESH_SECONDS`.

    A thread of this process may be the owner, for a caller that does not want to own the source itself.
    """
    status = statusfile.read(store, source)
    if status is None or status.record.state in ENDED:
        return None
    owner = status.record.owner
    if owner == me:
        return None
    if is_beside(owner):
        pid = int(owner.get("pid", 0))
        if (pid == os.getpid() and me is not None) or not runs(pid):
            return None
        if pid != os.getpid() and status.age <= FRESH_SECONDS:
            return owner
    return owner if _moves(store, source, status.record) else None


def is_heard_here(store: Store, source: str) -> bool:
    """Tell whether an owner may write into this lake; a copied lake has the status of another's owner."""
    try:
        placefile.require(store)
    except Misconfigured:
        status = statusfile.read(store, source)
        within = statusfile.silence(store) + HEARD_SECONDS
        return status is not None and _moves(store, source, status.record, within)
    return True


def _moves(store: Store, source: str, before: SourceStatus, within: float = FRESH_SECONDS) -> bool:
    """Tell whether the record changes while we watch, for as long as a living owner may be silent."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        now = statusfile.read(store, source)
        if now is not None and now.record.updated_at != before.updated_at:
            return now.record.state not in ENDED
    return False


def mend(store: Store, source: str) -> None:
    """Take back the epochs that a power cut has torn; only the source's owner, old or new, may call this."""
    if recovery.is_settled(store, source):
        return
    from headrace.pipeline.state import records

    recovery.recover(store, source, lambda plan: records.late_files_are_whole(store, source, plan.state))


def mend_if_nobody_lives(store: Store, source: str) -> None:
    """Take back torn epochs, unless a living run owns the source."""
    if not recovery.is_settled(store, source) and living_owner(store, source) is None:
        mend(store, source)
