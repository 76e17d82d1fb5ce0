"""A lake that is a copy of another: the objects upstream belong to the original, and it keeps them.

    copied ─► an id of its own ─► each source's record names objects of the copy's own, which are not there
              (`placefile`)       yet: its place in the stream is lost, and `--reconcile` makes them

A source without objects upstream (a binlog) just goes on: a second reader does no harm. If the user named the
object that keeps our place, a copy of the lake would share it, so it is refused before it writes anything.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.core.errors import Misconfigured
from headrace.lake.format.formatfile import open_lake
from headrace.lake.store.open import open_store
from headrace.pipeline.state import last_config
from headrace.pipeline.state.records import SourceRecord
from headrace.sources import registry
from headrace.sources.contract.values import Json

_ANOTHER = "0" * 32  # an id that no lake has


def refuse_shared(path: str) -> None:
    """Refuse a copy of a lake if one of its sources is read through an object that the user made for it."""
    lake_id = open_lake(open_store(path)).lake_id
    for name, record in last_config.sources(path).items():
        facts = record.facts
        if facts.objects and not _of_lake(record, name, lake_id, _ANOTHER):
            named = ", ".join(f'{option} "{each}"' for option, each in facts.options.items())
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
