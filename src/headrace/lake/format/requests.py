"""Requests: how a command asks something of the process that owns a source.

One file per request, one per answer, both put-if-absent, under `_headrace/requests/<source>/`. Only the
owner changes a source, so a command that wants something changed leaves a request and waits for the
answer. Requests are carried out in the order in which they were made (their ids begin with the time); a
request that was answered stays answered, whatever crashes: the answer's file is written last. The owner
may be ended between doing and answering, so what a request asks for must bear being done twice.

A request holds names and choices, never a secret.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from headrace.lake.format import layout
from headrace.lake.store.contract import Store

_ANSWER = ".answer.json"
_REQUEST = ".request.json"


@dataclass(frozen=True, slots=True)
class Request:
    """Something asked of the owner: `kind` says what, `arguments` are JSON."""

    id: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)


def ask(
    store: Store, source: str, kind: str, arguments: Mapping[str, Any], *, now: datetime | None = None
) -> Request:
    """Leave a request for the owner of the source."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    request = Request(f"{moment:%Y%m%dT%H%M%S%f}-{uuid.uuid4().hex}", kind, dict(arguments))
    record = {"kind": kind, "arguments": request.arguments}
    store.put_if_absent(_key(source, request.id, _REQUEST), json.dumps(record).encode())
    return request


def pending(store: Store, source: str) -> list[Request]:
    """The requests without an answer, oldest first."""
    names = [key.rsplit("/", 1)[1] for key in store.list(layout.requests_folder(source))]
    answered = {name.removesuffix(_ANSWER) for name in names if name.endswith(_ANSWER)}
    asked = [name.removesuffix(_REQUEST) for name in names if name.endswith(_REQUEST)]
    found = [_read(store, source, id) for id in asked if id not in answered]
    return [request for request in found if request is not None]


def answer(store: Store, source: str, request: Request, outcome: Mapping[str, Any]) -> None:
    """Tell the outcome; the first answer stands."""
    store.put_if_absent(_key(source, request.id, _ANSWER), json.dumps(dict(outcome)).encode())


def answer_to(store: Store, source: str, request: Request) -> dict[str, Any] | None:
    """The outcome, once there is one."""
    data = store.get(_key(source, request.id, _ANSWER))
    return None if data is None else dict(json.loads(data))


def finished_requests(store: Store, source: str, before: datetime) -> list[Request]:
    """The requests that were made before this moment and have an answer."""
    names = [key.rsplit("/", 1)[1] for key in store.list(layout.requests_folder(source))]
    limit = f"{before.astimezone(UTC):%Y%m%dT%H%M%S%f}"
    ids = sorted(name.removesuffix(_ANSWER) for name in names if name.endswith(_ANSWER))
    return [Request(id, "") for id in ids if id < limit]


def forget(store: Store, source: str, request: Request) -> None:
    """Remove a request and its answer, the request first: it must not seem to be pending again."""
    store.delete(_key(source, request.id, _REQUEST))
    store.delete(_key(source, request.id, _ANSWER))


def _read(store: Store, source: str, id: str) -> Request | None:
    data = store.get(_key(source, id, _REQUEST))
    if data is None:
        return None
    record = json.loads(data)
    return Request(id, record["kind"], record["arguments"])


def _key(source: str, id: str, suffix: str) -> str:
    return f"{layout.requests_folder(source)}/{id}{suffix}"
