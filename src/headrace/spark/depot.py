"""The way round for what is too large for a row of the JVM, or needed by many tasks: through a store.

    item, blob or result ── larger than `limit` ──► an object ──► its name travels in its place
    what all items share ── larger than SHARED ───►  likewise, and is read once in each worker

`jobs` and `worker` put and open what passes between driver and tasks; nobody else sees a name in the place of
bytes, but for what a caller shares (`Jobs.shared`), which its tasks open themselves (`opened`). The objects
of a job lie in a folder of their own, which is removed when the job is over; what a driver that was killed
left there is removed by a later one (`tidy`). Names hold no credentials: whoever opens one reaches the store
by its own environment, as tasks reach the lake.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from headrace.core.errors import Transient
from headrace.lake.format import layout
from headrace.lake.store.open import open_store

LARGEST: Final = 64 << 20
SHARED: Final = 64 << 10
ABANDONED_SECONDS: Final = 7 * 86400.0

# A payload that happens to begin so goes through the store like a large one.
_NAME: Final = b"\0headrace depot\0d3b07384d113edec\0"


@dataclass(frozen=True, slots=True)
class Depot:
    """A place in a store, for one driver or for one of its jobs."""

    url: str
    folder: str = layout.DEPOT
    limit: int = LARGEST

    def job(self) -> Depot:
        """The place of one job; its name tells when it began."""
        return replace(self, folder=f"{layout.DEPOT}/{int(time.time())}-{uuid.uuid4().hex}")

    def put(self, data: bytes) -> bytes:
        """Lay the data down; its name."""
        key = f"{self.folder}/{uuid.uuid4().hex}"
        open_store(self.url).put(key, data)
        return _NAME + json.dumps([self.url, key]).encode()

    def clear(self) -> None:
        """Remove all that lies here."""
        store = open_store(self.url)
        for key in store.list(self.folder):
            store.delete(key)

    def tidy(self) -> None:
        """Remove what drivers left that are long gone."""
        store = open_store(self.url)
        for name in store.folders(layout.DEPOT):
            begun = name.partition("-")[0]
            if begun.isdigit() and time.time() - int(begun) > ABANDONED_SECONDS:
                replace(self, folder=f"{layout.DEPOT}/{name}").clear()


def sent(depot: Depot | None, payload: bytes) -> bytes:
    """Send the payload, or its name."""
    if depot is None or (len(payload) <= depot.limit and not payload.startswith(_NAME)):
        return payload
    return depot.put(payload)


def arrived(payload: bytes) -> bytes:
    """The payload, also where its name came."""
    return read(payload) if payload.startswith(_NAME) else payload


def opened(payload: bytes) -> bytes:
    """As `arrived`, for what is shared: the next item finds it here."""
    return _fetched(payload) if payload.startswith(_NAME) else payload


@contextmanager
def shared(depot: Depot | None, data: bytes) -> Iterator[bytes]:
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
