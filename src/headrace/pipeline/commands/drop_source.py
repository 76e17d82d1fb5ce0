"""Taking back what was made upstream, if it is ours: slot and publication, or a reader of a queue.

What the user brought is never touched. What a run was about to make when it was killed is looked for, too
(`state.last_config`). The tables in an Iceberg catalog go last: a catalog that is away keeps nothing at the
source, and the next drop takes them. A source that is being run is left alone, unless the user says that its
run may be ended first; that is done by SIGTERM, so that it finishes the epoch in hand.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.errors import Misconfigured, Transient
from headrace.lake.format import exportfile, placefile, statusfile
from headrace.lake.format.formatfile import open_lake
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.pipeline.commands import iceberg
from headrace.pipeline.state import last_config
from headrace.pipeline.state.config import Config, LakeConfig, SourceConfig, add_variables
from headrace.pipeline.state.ownership import living_owner
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.contract.values import Json
from headrace.spool.process import is_beside

STOP_WITHIN = 60.0


def drop(
    path: str, *, url: str | None = None, only: str | None = None, stop: bool = False, is_moved: bool = False
) -> Iterator[str]:
    """Remove the upstream objects of a lake's sources; says what it did.

    Those of a lake that lies elsewhere than it did may be another's, unless it was `moved`.
    """
    store = Lake(path).store
    if not is_moved:
        placefile.require(store)
    known = _known_objects(path, store, only)
    for name, made in known.items():
        _free(store, name, stop)
        removed = _drop(_source(path, name, url, made), made.record)
        yield from (f"{name}: dropped {each}" for each in removed)
        if not removed:
            yield f"{name}: nothing of ours was there"
        last_config.dropped_at(store, name)
        statusfile.mark_dropped(store, name)
    for name in known:
        namespace = iceberg.detach_alone(store, name)
        if namespace is not None:
            yield f"{name}: dropped {_ICEBERG.format(namespace)}"
    if not known:
        yield _NOTHING


def drop_reader(path: str, reader: str, *, url: str | None = None, only: str | None = None) -> Iterator[str]:
    """Remove another mirror that reads through the same objects as this lake's; this one may be running."""
    known = _known_objects(path, Lake(path).store, only)
    for name, made in known.items():
        removed = _drop(_source(path, name, url, made), made.record, reader)
        yield from (f"{name}: dropped {each}" for each in removed)
    if not known:
        yield _NOTHING


def removable(
    path: str, *, url: str | None = None, only: str | None = None, reader: str | None = None
) -> list[str]:
    """The objects that `drop`, or with a reader `drop_reader`, would remove now; nothing is changed."""
    found, store = [], Lake(path).store
    for name, made in _known_objects(path, store, only).items():
        gone = _drop(_source(path, name, url, made), made.record, reader, rehearse=True)
        found += [f"{name}: {each}" for each in gone]
        exported = exportfile.read(store, name) if reader is None else None
        if exported is not None:
            found.append(f"{name}: {_ICEBERG.format(exported.namespace)}")
    return found


_ICEBERG = 'the lake\'s tables in the Iceberg namespace "{}"'
_NOTHING = "this lake has run no source: nothing was made upstream for it"


def _known_objects(path: str, store: Store, only: str | None) -> dict[str, _Upstream]:
    """Find what the sources of the lake have upstream, or the one that is named."""
    known = _begun_objects(store) | {
        name: _upstream_of(record) for name, record in last_config.sources(path).items()
    }
    if only is not None and only not in known:
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            f'this lake has no source "{only}"',
            hint=f"name one of: {', '.join(sorted(known))}" if known else "headrace run mirrors one",
        )
    return {name: made for name, made in known.items() if only in (None, name)}


@dataclass(frozen=True, slots=True)
class _Upstream:
    """The objects that may be upstream of a source, and where."""

    address: str
    record: Json


def _upstream_of(record: SourceRecord) -> _Upstream:
    return _Upstream(record.address, record.upstream)


def _begun_objects(store: Store) -> dict[str, _Upstream]:
    """The objects that runs were about to make: one that was killed amid that left no record of it."""
    lake_id = open_lake(store).lake_id
    found = {}
    for name, (_, config) in last_config.recall(store).items():
        planned = registry.by_address(config.url).plan(lake_id, name, config.options)
        found[name] = _Upstream(config.url, planned)
    return found


def _free(store: Store, name: str, stop: bool) -> None:
    owner = living_owner(store, name)
    if owner is None:
        return
    # In a container beside us, which may have our host's name, the same number is another process.
    if not stop or not is_beside(owner):
        raise Misconfigured(
            "SOURCE_OWNED",
            f'source "{name}" of this lake is run by another process',
            detail=f"pid {owner.get('pid')} on {owner.get('host')}",
            hint="stop it first, or on its own machine, in its own container: headrace drop --stop",
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


def _source(path: str, name: str, url: str | None, made: _Upstream) -> SourceConfig:
    """The source as it is reached now: by `--url`, by what variables say, or where it was."""
    config = add_variables(Config(LakeConfig(path), {name: SourceConfig(url=made.address)})).sources[name]
    return config if url is None else replace(config, url=url)


def _drop(
    config: SourceConfig, upstream: Json, reader: str | None = None, *, rehearse: bool = False
) -> list[str]:
    source = registry.by_address(config.url)
    place = config.address()
    if reader is None:
        return [] if source.drop is None else source.drop(place, upstream, rehearse)
    if source.drop_reader is None:
        title = registry.declaration(registry.kind_of(config.url)).title
        raise Misconfigured(
            "SOURCE_WITHOUT_READERS",
            f"{title} has no readers that share anything: each mirror has its own",
            hint="headrace drop --lake LAKE of the mirror that shall go",
        )
    return source.drop_reader(place, upstream, reader, rehearse)
