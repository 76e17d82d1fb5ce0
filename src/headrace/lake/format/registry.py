"""The register of a lake, written by SQL: sources to be mirrored, and views over them.

    _headrace/registry/sources/<name>.json     {"kind": ..., "connection": ..., ...}
    _headrace/registry/views/<name>.json       {"text": "SELECT ...", "materialized": false, "columns": ...}

A source's `views` are the tables that `CREATE VIEWS FROM SOURCE` chose of it, as patterns; none before the
first such statement, which means all of its tables. Options of its kind stand beside the rest, under their
names. A view keeps the columns that the tables of its sources had when it was written (`sql.rawrows`). A
connection stands here without its password: that is whoever runs the lake's to know. Nothing in here says
what is mirrored: that is the catalog's, once a run has begun.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.records import from_record, on_disk, to_record
from headrace.lake.format import layout
from headrace.lake.store.contract import Store

Columns = Mapping[str, Mapping[str, Any]]  # of a source's tables, by their number there
_OF_ALL = frozenset({"kind", "connection", "views", "materialized"})  # of a source's record


@dataclass(frozen=True, slots=True)
class RegisteredSource:
    """A source as it was created."""

    name: str = field(metadata=on_disk(outside=True))
    kind: str
    connection: str
    options: Mapping[str, str] = field(metadata=on_disk(outside=True))  # of its kind
    views: tuple[str, ...] | None = None
    is_materialized: bool = field(default=False, metadata=on_disk("materialized"))


@dataclass(frozen=True, slots=True)
class RegisteredView:
    """A view that somebody wrote."""

    name: str = field(metadata=on_disk(outside=True))
    text: str
    is_materialized: bool = field(default=False, metadata=on_disk("materialized", optional=True))
    # Of the tables that it reads, by source.
    columns: Mapping[str, Columns] = field(default_factory=dict, metadata=on_disk(optional=True))


class Registry:
    """The registered things of one lake, as of each look."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def sources(self) -> dict[str, RegisteredSource]:
        return {name: _source(name, raw) for name, raw in self._all(layout.REGISTERED_SOURCES).items()}

    def views(self) -> dict[str, RegisteredView]:
        return {
            name: from_record(RegisteredView, raw, name=name)
            for name, raw in self._all(layout.REGISTERED_VIEWS).items()
        }

    def add(self, thing: RegisteredSource | RegisteredView) -> bool:
        """Register it; False where its name is taken."""
        key = _key(thing)
        made = self._store.put_if_absent(key, _text(thing))
        self._store.sync([key])
        return made

    def replace(self, thing: RegisteredSource | RegisteredView) -> None:
        """Register it, whatever was there under its name."""
        key = _key(thing)
        self._store.put(key, _text(thing))
        self._store.sync([key])

    def remove(self, thing: RegisteredSource | RegisteredView) -> None:
        self._store.delete(_key(thing))

    def _all(self, folder: str) -> dict[str, dict[str, Any]]:
        found = {}
        for key in self._store.list(folder):
            data = self._store.get(key)
            if data is not None:
                found[layout.unquote(key.rsplit("/", 1)[1].removesuffix(".json"))] = _parse(key, data)
        return found


def _key(thing: RegisteredSource | RegisteredView) -> str:
    folder = layout.REGISTERED_SOURCES if isinstance(thing, RegisteredSource) else layout.REGISTERED_VIEWS
    return f"{folder}/{layout.quote(thing.name)}.json"


def _text(thing: RegisteredSource | RegisteredView) -> bytes:
    options = thing.options if isinstance(thing, RegisteredSource) else {}
    return json.dumps({**to_record(thing), **options}, sort_keys=True).encode()


def _parse(key: str, data: bytes) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(data)
    except ValueError as error:
        raise Misconfigured(
            "LAKE_REGISTRY_DAMAGED",
            f'the file "{key}" of this lake cannot be read',
            hint="restore it from a backup of the lake, or delete it and create the thing again",
        ) from error
    return found


def _source(name: str, raw: Mapping[str, Any]) -> RegisteredSource:
    options = {key: value for key, value in raw.items() if key not in _OF_ALL}
    known = {key: value for key, value in raw.items() if key in _OF_ALL}
    return from_record(RegisteredSource, known, name=name, options=options)
