"""The status file: how a source is doing, as its owner last said.

`run` writes it about once a second; into a bucket, where each request is paid for, only if it has news or
wrote none for eight seconds. `headrace status` reads it, says how old it is, and so needs neither a
connection nor a password. It is whole or absent at any moment, never half; it is not made durable, since it
is about now. What it holds is a `status.SourceStatus`, as JSON.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from headrace.core.records import to_record
from headrace.lake.format import layout
from headrace.lake.format.status import TIME_SPEC, SourceStatus
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore

EVERY_SECONDS = 1.0
EVERY_SECONDS_AFAR = 8.0  # into a bucket, without news


def silence(store: Store) -> float:
    """The seconds that may pass between two records of a living owner."""
    return EVERY_SECONDS if isinstance(store, LocalStore) else EVERY_SECONDS_AFAR


@dataclass(frozen=True, slots=True)
class Status:
    """The newest word of the owner, and how long ago it came, in seconds."""

    record: SourceStatus
    age: float


def write(store: Store, source: str, status: SourceStatus, *, now: datetime | None = None) -> None:
    """Replace the source's status."""
    wrapped = {"written_at": (now or datetime.now(UTC)).isoformat(), "record": to_record(status)}
    store.put(layout.status_key(source), json.dumps(wrapped).encode(), lasting=False)


def mark_dropped(store: Store, source: str) -> None:
    """Write down that what was made upstream for a source is gone: nobody runs it, and no warning holds."""
    now, before = datetime.now(UTC), read(store, source)
    said = SourceStatus(source, "dropped") if before is None else before.record
    moment = now.isoformat(timespec=TIME_SPEC)
    over = replace(
        said,
        state="dropped",
        state_since=moment,
        updated_at=moment,
        error=None,
        warnings={},
        warned_since={},
        upstream=None,
        work=None,
        spark=None,
    )
    write(store, source, over, now=now)


def sources(store: Store) -> list[str]:
    """The sources of which anybody ever wrote a status."""
    keys = store.list(layout.STATUS_FOLDER)
    return [layout.unquote(key.rpartition("/")[2].removesuffix(".json")) for key in keys]


def read(store: Store, source: str, *, now: datetime | None = None) -> Status | None:
    """The source's status, or None where nobody ever wrote one that can be read.

    A power cut may leave half of it, and another release may write what we do not understand.
    """
    data = store.get(layout.status_key(source))
    if data is None:
        return None
    try:
        wrapped = json.loads(data)
        written = datetime.fromisoformat(wrapped["written_at"])
        said = SourceStatus.of(wrapped["record"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
    age = ((now or datetime.now(UTC)) - written).total_seconds()
    # A clock that was set back, or another machine's, must not make a status younger than now.
    return Status(record=said, age=max(0.0, age))
