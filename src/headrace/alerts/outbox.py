"""The outbox of one hook: the events that it has not taken yet, and the states that it was told of.

    <spool of the source>/alerts/<name>.<way>.json      on this machine; only its user reads it

Events and states are written together. An event leaves the file once its hook took it: after a crash in
between the hook gets it again, with the same `id`. Where the file is gone or is another lake's, the hook
knows nothing, and is told anew of what is wrong then. At most `MOST_EVENTS` wait; beyond that the oldest
goes, and `dropped` of the next event counts those. The file holds no address of a hook.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headrace.alerts.events import Event, KnownStates
from headrace.core.errors import Transient
from headrace.core.records import to_record

MOST_EVENTS = 1000


class Outbox:
    """The events of one hook; one thread adds and saves, another takes."""

    def __init__(self, path: Path, lake_id: str, lake: str) -> None:
        self._path, self._lake_id, self._lake = path, lake_id, lake
        self._change, self._writing = threading.Condition(), threading.Lock()
        self._is_changed = False
        record = _read(path, lake_id)
        self.states = KnownStates.of(record.get("known", {}))
        self._events: deque[dict[str, Any]] = deque(record.get("events", ()))
        self._dropped = int(record.get("dropped", 0))
        self._is_open = True

    def add(self, events: Iterable[Event], states: KnownStates) -> None:
        """Take up events and what the hook knows after them; `save` follows."""
        with self._change:
            self._is_changed |= states != self.states
            self.states = states
            for event in events:
                self._is_changed = True
                if len(self._events) >= MOST_EVENTS:
                    self._events.popleft()
                    self._dropped += 1
                record = {"id": secrets.token_hex(8), "lake": self._lake, **to_record(event)}
                self._events.append(record)

    def save(self) -> None:
        """Write down what changed since the last time; raises where the disk does not take it.

        Events are delivered all the same then: the disk that is full is what a person has to hear of.
        """
        with self._writing:
            self._save()

    def _save(self) -> None:
        with self._change:
            if not self._is_changed:
                return
            data = json.dumps(
                {
                    "lake_id": self._lake_id,
                    "known": to_record(self.states),
                    "events": list(self._events),
                    "dropped": self._dropped,
                }
            ).encode()
            self._is_changed = False
            self._change.notify_all()
        try:
            _write(self._path, data)
        except OSError as error:
            self._is_changed = True
            raise Transient(
                "ALERT_UNSAVED",
                "alerts that wait for their hooks cannot be written down",
                detail=error.strerror,
                hint="free space on the disk of the spool; until then a restart may lose them",
            ) from None

    def next(self) -> Mapping[str, Any] | None:
        """Wait for the oldest event; None once the outbox is closed and empty."""
        with self._change:
            self._change.wait_for(lambda: self._events or not self._is_open)
            return {**self._events[0], "dropped": self._dropped} if self._events else None

    def take(self, event: Mapping[str, Any]) -> None:
        """Forget an event: its hook took it."""
        with self._change:
            if self._events and self._events[0]["id"] == event["id"]:
                self._events.popleft()
                self._dropped -= int(event["dropped"])
                self._is_changed = True

    def put_off(self, event: Mapping[str, Any]) -> str:
        """Have all others delivered before this event; return the `id` of the next one."""
        with self._change:
            if self._events and self._events[0]["id"] == event["id"]:
                self._events.rotate(-1)
                self._is_changed = True
            return str(self._events[0]["id"]) if self._events else ""

    def close(self) -> None:
        """Nothing more is added; who waits for the next event learns of the end."""
        with self._change:
            self._is_open = False
            self._change.notify_all()


def _read(path: Path, lake_id: str) -> Mapping[str, Any]:
    """The record of the run before; an empty one where there is none that we can read."""
    try:
        record = json.loads(path.read_bytes())
        whole = record["lake_id"] == lake_id and all("id" in each for each in record["events"])
        KnownStates.of(record["known"])
        return record if whole else {}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "wb") as out:
        out.write(data)
        out.flush()
        os.fsync(out.fileno())
    new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)  # else a power cut may bring back the file of before
    finally:
        os.close(folder)
