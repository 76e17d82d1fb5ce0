"""The depot: a store for payloads that are too large for a row of the JVM, or that many tasks need.

    item, blob or result ── larger than `limit` ──► an object ──► its name travels in its place
    data of all items    ── larger than SHARED ───►  likewise, and is read once in each worker

`jobs` and `worker` put and open these payloads between driver and tasks; no other code sees a name in the
place of bytes, except for data that a caller shares (`Jobs.share`): its tasks open it themselves
(`receive_shared`). The objects of a job lie in a folder of their own, which is removed when the job is over.
The folder's name tells whose job it is, so that the next driver removes the objects of a killed one (`tidy`).
If the store is a directory, the limit is low: there a file costs less than the way through the JVM, whose
memory would grow with the payloads. Names of objects hold no credentials: a task that opens one reaches the
store by its own environment, as it reaches the lake.
"""

from __future__ import annotations

import json
import os
import re
import socket
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from headrace.core.errors import Transient
from headrace.lake.format import layout
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store
from headrace.spool.process import runs

LARGEST: Final = 64 << 20
LARGEST_NEARBY: Final = 256 << 10
SHARED: Final = 64 << 10
ABANDONED_SECONDS: Final = 7 * 86400.0

# A payload that happens to begin so goes through the store like a large one.
_NAME: Final = b"\0headrace depot\0d3b07384d113edec\0"
_THIS_PROCESS: Final = uuid.uuid4().hex  # its number may have been another's
_JOB: Final = re.compile(r"(?P<begun>\d+)-(?P<pid>\d+)-(?P<process>\w+)-\w+-(?P<host>.*)")


@dataclass(frozen=True, slots=True)
class Depot:
    """A place in a store, for one driver or for one of its jobs."""

    url: str
    folder: str = layout.DEPOT
    limit: int = LARGEST

    @classmethod
    def of(cls, store: Store) -> Depot:
        """The place in this store."""
        return cls(store.url, limit=LARGEST_NEARBY if isinstance(store, LocalStore) else LARGEST)

    def job(self) -> Depot:
        """The place of one job; its name tells when it began, and where."""
        begun = f"{int(time.time())}-{os.getpid()}-{_THIS_PROCESS}-{uuid.uuid4().hex}-{socket.gethostname()}"
        return replace(self, folder=f"{layout.DEPOT}/{layout.quote(begun)}")

    def put(self, data: bytes) -> bytes:
        """Lay the data down; its name."""
        key = f"{self.folder}/{uuid.uuid4().hex}"
        open_store(self.url).put(key, data, lasting=False)
        return _NAME + json.dumps([self.url, key]).encode()

    def clear(self) -> None:
        """Remove all that lies here."""
        store = open_store(self.url)
        for key in store.list(self.folder):
            store.delete(key)

    def tidy(self) -> None:
        """Remove what drivers left that have ended."""
        store = open_store(self.url)
        for name in store.folders(layout.DEPOT):
            if _is_over(layout.unquote(name)):
                replace(self, folder=f"{layout.DEPOT}/{name}").clear()


def _is_over(job: str) -> bool:
    """Tell whether a job's driver has ended: of one on another host only time tells."""
    named = _JOB.fullmatch(job)
    if named is None or time.time() - int(named["begun"]) > ABANDONED_SECONDS:
        return named is not None
    if named["host"] != socket.gethostname():
        return False
    pid = int(named["pid"])
    return named["process"] != _THIS_PROCESS if pid == os.getpid() else not runs(pid)


def send(depot: Depot | None, payload: bytes) -> bytes:
    """Send the payload, or its name."""
    if depot is None or (len(payload) <= depot.limit and not payload.startswith(_NAME)):
        return payload
    return depot.put(payload)


def receive(payload: bytes) -> bytes:
    """Return the payload; if its name came in its place, open that."""
    return read(payload) if payload.startswith(_NAME) else payload


def receive_shared(payload: bytes) -> bytes:
    """Receive a shared payload; the next item finds it here."""
    return _fetched(payload) if payload.startswith(_NAME) else payload


@contextmanager
def share(depot: Depot | None, data: bytes) -> Iterator[bytes]:
    """Share data under what stands for it in items, as long as this lasts."""
    if depot is None or len(data) <= SHARED:
        yield data
        return
    place = depot.job()
    try:
        yield place.put(data)
    finally:
        place.clear()


def read(name: bytes) -> bytes:
    """The bytes of this name."""
    url, key = json.loads(name[len(_NAME) :])
    data = open_store(url).get(key)
    if data is None:
        raise Transient(
            "SPARK_DEPOT_EMPTY",
            "a Spark task came too late for its input: the job is over",
            detail=key,
            hint="nothing to do: it is tried again",
        )
    return data


_fetched = lru_cache(maxsize=2)(read)
