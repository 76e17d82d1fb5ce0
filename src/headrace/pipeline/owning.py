"""Who owns a source of a lake: one `run` at a time.

The lake's commit protocol keeps a second writer from doing harm (`lake.commit`: the newer one wins, the
older one's next plan fails). That is the safety; this is the manners: a second `run` on a source whose
owner is alive is told so, instead of taking the source from it.

An owner writes the status record about once a second. It is alive if its process is (on this machine), or
if its record changes while we watch (on another).
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.lake import statusfile
from headrace.lake.store import Store

FRESH_SECONDS = 20.0
WATCH_SECONDS = 4.0
ENDED = ("stopped", "failed")


def this_process(started_at: str) -> dict[str, Any]:
    """How this process calls itself as an owner."""
    return {"host": socket.gethostname(), "pid": os.getpid(), "started_at": started_at}


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
    """The owner of the source, if there is one that is alive and not `me`.

    A thread of this very process may be one, for whoever does not want to own the source himself.
    """
    status = statusfile.read(store, source)
    if status is None or status.record.get("state") in ENDED or status.age > FRESH_SECONDS:
        return None
    owner: Mapping[str, Any] = status.record.get("owner", {})
    if owner == me:
        return None
    if owner.get("host") == socket.gethostname():
        if owner.get("pid") != os.getpid():
            return owner if _runs(int(owner.get("pid", 0))) else None
        if me is not None:
            return None
    return owner if _moves(store, source, status.record) else None


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _moves(store: Store, source: str, before: Mapping[str, Any]) -> bool:
    """Whether the record changes while we watch."""
    deadline = time.monotonic() + WATCH_SECONDS
    while time.monotonic() < deadline:
        time.sleep(0.2)
        now = statusfile.read(store, source)
        if now is not None and now.record.get("updated_at") != before.get("updated_at"):
            return True
    return False
