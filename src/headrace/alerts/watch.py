"""The threads of a source's alerts, and the outboxes between them: one makes events of statuses, one a hook
delivers them.

    on_status   leaves a status, from any thread, and returns at once
    watch       compares it with what each hook knows, writes the outbox, wakes the hook's thread
    deliver     the oldest event, again and again with longer pauses, until the hook takes it; then the next.
                After `REFUSALS` refusals of one event the others go before it

`close` gives the hooks `GRACE_SECONDS` for the last words of a run; what they did not take then, the next run
delivers. This is one of the named supervisors: whatever fails here is a warning of the run, and no end of it.

An outbox has the events that a hook has not taken yet, and the states that it was told of:

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
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace.alerts.delivery import deliver
from headrace.alerts.events import Comparison, Event, KnownStates
from headrace.alerts.hooks import Hook
from headrace.core.errors import HeadraceError, Transient, place_of
from headrace.core.records import to_record
from headrace.lake.format import prooffile
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import SourceStatus
from headrace.lake.store.contract import Store

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 300.0
REFUSALS = 8  # within about four minutes
GRACE_SECONDS = 10.0
TURN_SECONDS = 1.0
PROOF_SECONDS = 5.0
_REFUSED = ("ALERT_HOOK_REFUSED", "ALERT_COMMAND_FAILED")  # it may take another event
_STATUSES = 64  # that wait to be looked at; the oldest goes


class AlertWatch:
    """The alerts of one source, while its run lasts."""

    def __init__(self, store: Store, source: str, lake_id: str, hooks: Sequence[Hook], spool: Path) -> None:
        self._store, self._source = store, source
        self._statuses: deque[SourceStatus] = deque(maxlen=_STATUSES)
        self._wake, self._closing = threading.Event(), threading.Event()
        self._warnings: dict[str, HeadraceError] = {}
        self._proofs: Mapping[str, TableProof] = {}
        self._proofs_at = -PROOF_SECONDS
        self._last: SourceStatus | None = None  # that was compared
        folder = spool / "alerts"
        self._posts = [
            (hook, Outbox(folder / f"{hook.name}.{hook.way}.json", lake_id, store.url)) for hook in hooks
        ]
        self._watcher = threading.Thread(target=self._watch, name="headrace-alerts", daemon=True)
        self._deliverers = [
            threading.Thread(target=self._deliver, args=post, name="headrace-alerts-hook", daemon=True)
            for post in self._posts
        ]
        for thread in (self._watcher, *self._deliverers):
            thread.start()

    @property
    def warnings(self) -> dict[str, str]:
        """The troubles of the hooks by code, for the run's status."""
        texts: defaultdict[str, list[str]] = defaultdict(list)
        for error in list(self._warnings.values()):
            texts[error.code].append(f"{error.primary}: {error.detail}" if error.detail else error.primary)
        return {code: "; ".join(dict.fromkeys(found)) for code, found in texts.items()}

    def on_status(self, status: SourceStatus) -> None:
        """Take up a status of the run."""
        self._statuses.append(status)
        self._wake.set()

    def close(self) -> None:
        """End, once the hooks took what happened, or `GRACE_SECONDS` are over."""
        deadline = time.monotonic() + GRACE_SECONDS
        self._closing.set()
        self._wake.set()
        self._watcher.join(GRACE_SECONDS)
        for thread in self._deliverers:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._save()

    # --- from statuses to events ------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._closing.is_set():
            self._wake.wait(TURN_SECONDS)
            self._wake.clear()
            self._turn()
        self._turn()
        for _, outbox in self._posts:
            outbox.close()

    def _turn(self) -> None:
        # Before the lake is asked for proofs: it may be why the run ends, and may not answer.
        self._guard("statuses", self._look_at_statuses)
        self._save()
        self._guard("proofs", self._look_at_proofs)
        self._save()

    def _guard(self, place: str, step: Callable[[], None]) -> None:
        """Take a step; whatever fails in it is a warning."""
        try:
            step()
            self._warnings.pop(place, None)
        except HeadraceError as error:
            self._warnings[place] = error
        except Exception as error:  # noqa: BLE001 - the end of a thread, which nobody else would learn of
            self._warnings[place] = _fault(error)

    def _look_at_statuses(self) -> None:
        while self._statuses:
            status = self._statuses.popleft()
            self._compare(status)
            self._last = status

    def _look_at_proofs(self) -> None:
        if time.monotonic() - self._proofs_at < PROOF_SECONDS and not self._closing.is_set():
            return
        self._proofs_at = time.monotonic()
        proofs = prooffile.read(self._store, self._source)
        if proofs != self._proofs:
            self._proofs = proofs
            if self._last is not None:
                self._compare(self._last)

    def _compare(self, status: SourceStatus) -> None:
        for hook, outbox in self._posts:
            now = datetime.now(UTC)
            look = Comparison(hook, self._store.url, outbox.states, status, self._proofs, now)
            outbox.add(*look.events())

    def _save(self) -> None:
        for hook, outbox in self._posts:
            place = f"outbox of {hook.label}"
            try:
                outbox.save()
                self._warnings.pop(place, None)
            except HeadraceError as error:
                self._warnings[place] = error

    # --- from events to hooks ---------------------------------------------------------------------

    def _deliver(self, hook: Hook, outbox: Outbox) -> None:
        pause, refusals = FIRST_PAUSE, Counter[str]()
        while (event := outbox.next()) is not None:
            error = self._attempt(hook, event)
            if error is None:
                outbox.take(event)
                self._wake.set()  # to be written down soon: until then a crash delivers it again
                pause = FIRST_PAUSE
                continue
            refusals[event["id"]] += error.code in _REFUSED
            if refusals[event["id"]] >= REFUSALS and not refusals[outbox.put_off(event)]:
                continue
            if self._closing.wait(pause):
                if pause == 0.0:
                    return  # it was tried once more; the next run goes on
                pause = 0.0
            else:
                pause = min(2 * pause, LONGEST_PAUSE)

    def _attempt(self, hook: Hook, event: Mapping[str, object]) -> HeadraceError | None:
        """Deliver an event once; the error if the hook did not take it, also as a warning of the run."""
        try:
            deliver(hook, event)
        except HeadraceError as error:
            self._warnings[hook.label] = error
            return error
        except Exception as error:  # noqa: BLE001 - the end of a thread, which nobody else would learn of
            self._warnings[hook.label] = fault = _fault(error)
            return fault
        self._warnings.pop(hook.label, None)
        return None


def _fault(error: Exception) -> Transient:
    return Transient(
        "ALERT_FAULT",
        "the alerts met a fault of ours",
        detail=place_of(error),
        hint="report this line; the run goes on",
    )


@contextmanager
def alerting(
    store: Store, source: str, lake_id: str, hooks: Sequence[Hook], spool: Path
) -> Iterator[AlertWatch | None]:
    """The alerts of a source while the body runs; none where nobody asked for any."""
    if not hooks:
        yield None
        return
    watch = AlertWatch(store, source, lake_id, hooks, spool)
    try:
        yield watch
    finally:
        watch.close()


# --- the outbox of a hook -------------------------------------------------------------------------


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
