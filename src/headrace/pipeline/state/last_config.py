"""The lake's memory of its sources: enough to go on, or to begin, with its path and the password alone.

A run writes down what it was configured to do, without the secrets, before it makes anything upstream:

    _headrace/remembered/<source>.json    {"lake": {"retention": ...}, "source": {"url": ..., "tables": ...}}

`headrace run --lake DIR`, `headrace drop --lake DIR` and whoever else is given no URL begin here; the
password then comes from where libpq finds it (PGPASSWORD, a password file). What `headrace tables` adds or
drops changes the patterns that are remembered, so that they go on saying what is wanted. How Spark is
reached is the machine's affair, and not remembered. A source that was only registered (`headrace sql`,
CREATE SOURCE) is begun as it was registered. `headrace drop` notes when it dropped a source (`dropped_at`).

A lake may be a copy of another. The objects upstream belong to the original, and it keeps them:

    copied ─► an id of its own ─► each source's record names objects of the copy's own, which are not there
              (`placefile`)       yet: its place in the stream is lost, and `--reconcile` makes them

A source without objects upstream (a binlog) just goes on: a second reader does no harm. If the user named the
object that keeps our place, a copy of the lake would share it, so it is refused before it writes anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from headrace.core.errors import Misconfigured, PositionDoubtful
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.lake.format import layout
from headrace.lake.format.formatfile import open_lake
from headrace.lake.format.registry import RegisteredSource, Registry
from headrace.lake.log import catalog
from headrace.lake.log.marks import Marks
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.state.config import PASSWORDS, Config, LakeConfig, SourceConfig, add_variables
from headrace.pipeline.state.ownership import mend_if_nobody_lives
from headrace.pipeline.state.records import SourceRecord, source_of
from headrace.sources import registry
from headrace.sources.contract.values import Json
from headrace.sources.shared.patterns import Pattern, select

T = TypeVar("T", LakeConfig, SourceConfig)
_ANOTHER = "0" * 32  # an id that no lake has


class MirrorDropped(Misconfigured, PositionDoubtful):
    """A person has dropped the mirror; only a person mirrors it again."""

    codes = ("SOURCE_DROPPED",)


def sources(path: str) -> dict[str, SourceRecord]:
    """The sources that a lake has records of."""
    lake = Lake(path)
    found = {}
    for name in lake.sources():
        mend_if_nobody_lives(lake.store, name)
        newest = Marks(lake.store, name).newest()
        record = source_of(catalog.load(lake.store, name, newest.epoch if newest else 0).records)
        if record is not None:
            found[name] = record
    return found


def configuration_of(path: str) -> Config:
    """The configuration of what a lake has run, and of what is registered in it."""
    store = Lake(path).store
    known = {name: _from_registry(source) for name, source in Registry(store).sources().items()}
    known |= {name: _from_record(record) for name, record in sources(path).items()}
    lake = LakeConfig(path)
    for name, (configured, source) in recall(store).items():
        known[name], lake = source, replace(configured, path=path)
    if not known:
        raise Misconfigured(
            "LAKE_WITHOUT_SOURCE",
            f'the lake at "{path}" does not know a source yet',
            hint="headrace run URL --lake DIR --tables 'public.*', or CREATE SOURCE in headrace sql",
        )
    config = add_variables(Config(lake, known))
    return replace(config, lake=replace(config.lake, path=path))


def _from_registry(source: RegisteredSource) -> SourceConfig:
    return SourceConfig(url=source.connection, tables=source.views or ("*.*",), options=source.options)


def _from_record(record: SourceRecord) -> SourceConfig:
    return SourceConfig(url=record.address, tables=record.patterns, options=record.facts.options)


# --- what the last run was configured to do -----------------------------------------------------


def remember(store: Store, name: str, config: SourceConfig, lake: LakeConfig) -> None:
    """Write down what a run is configured to do; whole or not at all, and durable."""
    address = config.address()
    source = _without_passwords(to_record(config) | {"url": address.without_secrets()})
    source |= source.pop("options")  # beside the others, as in a configuration
    kept = {key: value for key, value in to_record(lake).items() if key != "path"}
    data = json.dumps({"lake": kept, "source": source}, sort_keys=True).encode()
    key = layout.remembered_key(name)
    if store.get(key) != data:
        store.put(key, data)
        store.sync([key])


def dropped_at(store: Store, name: str) -> None:
    """Write down that a person has had what was made upstream removed, until somebody runs it again."""
    key = layout.remembered_key(name)
    data = store.get(key)
    if data is not None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        store.put(key, json.dumps({**json.loads(data), "dropped_at": now}, sort_keys=True).encode())
        store.sync([key])


def refuse_dropped(store: Store, name: str) -> None:
    """Raise where a person has dropped the mirror of a source: what is missing upstream is no accident."""
    data = store.get(layout.remembered_key(name))
    at = None if data is None else json.loads(data).get("dropped_at")
    if at is not None:
        raise MirrorDropped(
            "SOURCE_DROPPED",
            f'you dropped the mirror of source "{name}" on {at[:10]} at {at[11:19]} UTC',
            detail="what the lake has stays readable, and nothing was kept of the changes since",
            hint="headrace run --reconcile mirrors it again: all tables are copied anew, and one mark has "
            "what differs; or mirror into another lake",
        )


def recall(store: Store) -> dict[str, tuple[LakeConfig, SourceConfig]]:
    """Read how the sources of a lake were last configured."""
    found = {}
    for key in store.list(layout.REMEMBERED_FOLDER):
        data = store.get(key)
        if data is not None:
            found[layout.unquote(key.rpartition("/")[2].removesuffix(".json"))] = _parse(key, data)
    return found


def _parse(key: str, data: bytes) -> tuple[LakeConfig, SourceConfig]:
    try:
        record = json.loads(data)
        lake = _value(LakeConfig, {"path": "", **record["lake"]})
        source = _source(record["source"])
    except (ValueError, KeyError, TypeError):
        raise Misconfigured(
            "LAKE_MEMORY_DAMAGED",
            f'the file "{key}" of this lake cannot be read',
            hint="delete it, and say once more what is to be run: headrace run --config FILE",
        ) from None
    return lake, source


def _source(record: Mapping[str, Any]) -> SourceConfig:
    """The options of its kind stand beside the others; those that were not given may stand there as null."""
    declared = registry.declaration(registry.kind_of(record["url"])).options
    options = {each.name: record[each.name] for each in declared if record.get(each.name) is not None}
    known = _without_passwords(record)
    return _value(SourceConfig, {**known, "tables": tuple(record["tables"]), "options": options})


def _without_passwords(record: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out the origin of a password: whoever writes here must not choose what a run executes."""
    return {key: value for key, value in record.items() if key not in PASSWORDS}


def _value(kind: type[T], record: Mapping[str, Any]) -> T:
    """An option that this version does not know is one of a newer version, and has no effect here."""
    known = {field.name for field in fields(kind)}
    return kind(**{key: value for key, value in record.items() if key in known})


def tables_come(store: Store, name: str, patterns: Sequence[str]) -> None:
    """Remember that these are wanted, too."""
    _change(store, name, lambda known: _with(known, patterns) if known else known)


def tables_go(store: Store, name: str, names: Iterable[TableName], *, case_insensitive: bool = False) -> None:
    """Remember that these are wanted no longer; `folded` is of a source without case in names."""
    leaving = list(names)
    _change(store, name, lambda known: _without(known or ("*.*",), leaving, case_insensitive))


def _change(store: Store, name: str, changed: Callable[[tuple[str, ...]], tuple[str, ...]]) -> None:
    known = recall(store).get(name)
    if known is not None:
        lake, source = known
        remember(store, name, replace(source, tables=changed(source.tables)), lake)


def _with(known: Sequence[str], patterns: Sequence[str]) -> tuple[str, ...]:
    back = {f"!{text}" for text in patterns}
    return tuple(dict.fromkeys((*(text for text in known if text not in back), *patterns)))


def _without(known: Sequence[str], names: Sequence[TableName], folded: bool) -> tuple[str, ...]:
    patterns = [Pattern.parse(text) for text in known]
    left = [
        pattern.text
        for pattern in patterns
        if pattern.excludes or not select([pattern.text], names, case_insensitive=folded).named_tables
    ]
    still = select(left, names, case_insensitive=folded).names
    return (*left, *(f"!{name}" for name in still))


# --- a copied lake --------------------------------------------------------------------------------


def refuse_shared(path: str) -> None:
    """Refuse a copy of a lake if one of its sources is read through an object that the user made for it."""
    lake_id = open_lake(open_store(path)).lake_id
    for name, record in sources(path).items():
        facts = record.facts
        if facts.objects and not _of_lake(record, name, lake_id, _ANOTHER):
            theirs = ((what, each) for what, each in facts.options.items() if what in facts.objects)
            named = ", ".join(f'{what} "{each}"' for what, each in theirs)
            raise Misconfigured(
                "LAKE_COPY_SHARED",
                f'source "{name}" of this lake is read through objects that its user named',
                detail=f"{named}: the copy would take from the original what both read",
                hint="mirror into a new lake, with objects of its own: headrace run URL --lake DIR",
            )


def with_own_objects(record: SourceRecord, name: str, lake_id: str, copy_of: str) -> SourceRecord | None:
    """Give the record of a copy's source objects of its own; None if it has them, or needs none."""
    theirs = _of_lake(record, name, copy_of, lake_id)
    if not any(record.upstream.get(key) == value for key, value in theirs.items()):
        return None
    return replace(record, upstream=_plans(record, name, lake_id))


def _of_lake(record: SourceRecord, name: str, lake_id: str, other: str) -> Json:
    """Return the objects upstream whose names depend on the lake."""
    ours, theirs = (_plans(record, name, each) for each in (lake_id, other))
    return {key: value for key, value in ours.items() if theirs[key] != value}


def _plans(record: SourceRecord, name: str, lake_id: str) -> Json:
    return registry.by_kind(record.kind).plan(lake_id, name, record.facts.options)
