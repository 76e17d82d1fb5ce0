"""Taking back what was made upstream: slot and publication, if they are ours.

What the user brought is never touched. A source that is being run is left alone, unless the user says
that its run may be ended first; that is done by SIGTERM, so that it finishes the epoch in hand.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.core.errors import Misconfigured, Transient
from headrace.lake.reader import Lake
from headrace.lake.store import Store
from headrace.pipeline import remembered
from headrace.pipeline.owning import living_owner
from headrace.pipeline.records import SourceRecord
from headrace.sources.postgres.session import Address, application_name
from headrace.sources.postgres.upstream import drop_upstream

STOP_WITHIN = 60.0


def drop(path: str, *, url: str | None = None, only: str | None = None, stop: bool = False) -> Iterator[str]:
    """Remove the upstream objects of a lake's sources; says what it did."""
    store = Lake(path).store
    known = remembered.sources(path)
    if only is not None and only not in known:
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            f'this lake has no source "{only}"',
            hint=f"name one of: {', '.join(sorted(known))}",
        )
    for name, record in known.items():
        if only is None or name == only:
            _free(store, name, stop)
            yield from _drop(name, record, Address.parse(url or record.address))


def _free(store: Store, name: str, stop: bool) -> None:
    owner = living_owner(store, name)
    if owner is None:
        return
    if not stop or owner.get("host") != socket.gethostname():
        raise Misconfigured(
            "SOURCE_OWNED",
            f'source "{name}" of this lake is run by another process',
            detail=f"pid {owner.get('pid')} on {owner.get('host')}",
            hint="stop it first, or on its own machine: headrace drop --stop",
        )
    _end(store, name, owner)


def _end(store: Store, name: str, owner: Mapping[str, Any]) -> None:
    os.kill(int(owner["pid"]), signal.SIGTERM)
    deadline = time.monotonic() + STOP_WITHIN
    while living_owner(store, name) is not None:
        if time.monotonic() > deadline:
            raise Transient(
                "SOURCE_WILL_NOT_STOP",
                f'the run of source "{name}" has not ended',
                detail=f"pid {owner['pid']} after {STOP_WITHIN:.0f} s",
                hint="wait for it, then drop again",
            )
        time.sleep(0.1)


def _drop(name: str, record: SourceRecord, address: Address) -> Iterator[str]:
    removed = drop_upstream(
        address,
        publication=record.publication if record.owns_publication else None,
        slot=record.slot if record.owns_slot else None,
        application=application_name(f"receiver {record.slot}"),
    )
    for each in removed:
        yield f"{name}: dropped {each}"
    if not removed:
        yield f"{name}: nothing of ours was there"
