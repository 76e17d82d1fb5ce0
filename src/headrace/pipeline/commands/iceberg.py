"""The commands that begin, renew and end the export of a source's marks to Iceberg: deeds of its owner.

Each hands its work to a thread, since a catalog may take its time. The exporter lets one of them, or the
run's own export, go on at a time. It is loaded late, since pyiceberg need not be installed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Misconfigured
from headrace.core.records import from_record, to_record
from headrace.iceberg import catalog
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import exportfile
from headrace.lake.format.formatfile import open_lake
from headrace.lake.read.lake import Lake
from headrace.lake.retain.thinning import Keeping
from headrace.lake.store.contract import Store
from headrace.pipeline.state.owner import Answer, Owner, Steps

if TYPE_CHECKING:
    from headrace.iceberg.export import Exporter


def attach(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Attach the source to a catalog and export its newest mark; the answer says which."""
    exporter = _exporter(owner)
    config = from_record(IcebergConfig, dict(arguments))
    yield partial(exporter.attach, config)
    exported = yield exporter.export
    return _answer(owner, exporter, exported is not None)


def rebuild(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Make all tables in the catalog anew, from the newest mark."""
    exporter = _exporter(owner)
    exported = yield partial(exporter.export, rebuild=True)
    return _answer(owner, exporter, exported is not None)


def detach(owner: Owner, arguments: Mapping[str, Any]) -> Steps:
    """Take the tables of the source out of the catalog; refused to a run that would attach them again."""
    if owner.place.iceberg is not None:
        raise Misconfigured(
            "ICEBERG_CONFIGURED",
            "the run of this source exports marks because its configuration has [iceberg]",
            detail="it would attach the lake again at once",
            hint="stop the run, remove [iceberg] from headrace.toml, then headrace iceberg detach --lake DIR",
        )
    exporter = _exporter(owner)
    yield exporter.detach
    return {"namespace": None, "epoch": None, "tables": 0, "left_out": {}}


def detach_alone(store: Store, source: str) -> str | None:
    """Take the tables of a source that nobody runs out of its catalog; the namespace, None without one."""
    if exportfile.read(store, source) is None:
        return None
    catalog.require()
    from headrace.iceberg.export import Exporter

    exporter = Exporter(store, source, open_lake(store).lake_id, timedelta(0))
    return None if exporter.attachment() is None else exporter.detach()


def status(path: str, name: str) -> Mapping[str, Any]:
    """The state of an export, as its record tells; asks nobody."""
    lake = Lake(path)
    record = exportfile.read(lake.store, name)
    if record is None:
        raise Misconfigured(
            "ICEBERG_NOT_ATTACHED",
            f'marks of source "{name}" are not exported to Iceberg',
            hint="headrace iceberg attach --lake DIR, or [iceberg] in headrace.toml",
        )
    newest, marks = record.newest, lake.marks(name)
    return {
        "namespace": record.namespace,
        "epoch": None if newest is None else newest.epoch,
        "exported_at": None if newest is None else newest.at.isoformat(timespec="seconds"),
        "newest_epoch": marks[-1].epoch if marks else None,
        "tags": [mark.epoch for mark in record.marks if mark.is_done and mark.gone_at is None],
        "every": record.every,
        "left_out": dict(record.left_out),
    }


def _exporter(owner: Owner) -> Exporter:
    catalog.require()
    from headrace.iceberg.export import Exporter

    place = owner.place
    grace = Keeping.of(marks=place.lake.marks, grace=place.lake.grace).dense
    return Exporter(place.store, place.name, place.lake_id, grace, place.iceberg)


def _answer(owner: Owner, exporter: Exporter, is_new: bool) -> Answer:
    record = exportfile.read(owner.place.store, owner.place.name)
    assert record is not None
    return {
        "namespace": record.namespace,
        "epoch": None if record.newest is None else record.newest.epoch,
        "is_new": is_new,
        "tables": sum(1 for pins in record.folders.values() if pins),
        "left_out": {name: to_record(error) for name, error in exporter.left_out.items()},
    }
