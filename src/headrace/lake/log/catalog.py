"""The catalog: all records of a source beside its rows; the fold of all plans that have a mark.

    state(N) = state(N-1) updated with plan(N).state          a record of None removes its key

So the records and the contents of tables change in one instant, the mark. Keys and records are the pipeline's
own (JSON); nothing here looks into them. A withdrawn plan counts as its withdrawal, which changes no state.

Without checkpoints, opening would have to read every plan since the beginning. So the fold is written down
once in `INTERVAL` epochs (`_headrace/catalog/<source>/<N>.json`, put-if-absent: it is a function of the
plans, so every writer writes equal bytes). Opening reads the last one and the few plans after it. Maintenance
writes one for each old mark that stays, and can then delete the old plans.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.core.errors import Definite
from headrace.lake.format import layout
from headrace.lake.format.plan import Plan

INTERVAL = 100


class CatalogFiles(Protocol):
    """The part of a `Store` that is needed here."""

    def put_if_absent(self, key: str, data: bytes) -> bool: ...

    def get(self, key: str) -> bytes | None: ...

    def list(self, prefix: str) -> tuple[str, ...]: ...

    def delete(self, key: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Catalog:
    """The records of a source as of a mark."""

    source: str
    epoch: int = 0
    records: Mapping[str, Any] = field(default_factory=dict)

    def after(self, plan: Plan) -> Catalog:
        """Return the catalog after the next epoch's plan has its mark."""
        assert plan.epoch == self.epoch + 1, "plans are folded one by one"
        merged = {**self.records, **plan.state}
        kept = {key: record for key, record in merged.items() if record is not None}
        return Catalog(self.source, plan.epoch, kept)

    def at(self, epoch: int) -> Catalog:
        """Carry the records over to the mark of a withdrawal or a takeover, which changes none."""
        return Catalog(self.source, epoch, self.records)


def load(files: CatalogFiles, source: str, epoch: int) -> Catalog:
    """Load the catalog as of the mark of `epoch` (0: before the first)."""
    start = _checkpoint(files, source, epoch)
    while True:
        catalog = fold(files, start, epoch)
        if catalog is not None:
            return catalog
        # An owner may have cleaned up between our look for a checkpoint and the plans after it.
        later = _checkpoint(files, source, epoch)
        if later.epoch <= start.epoch:
            raise Definite(
                "LAKE_PLAN_MISSING",
                f'a plan of source "{source}" between epochs {start.epoch} and {epoch} is gone',
                hint="restore the lake's _headrace folder from a backup",
            )
        start = later


def fold(files: CatalogFiles, catalog: Catalog, epoch: int) -> Catalog | None:
    """Fold a catalog on to the mark of `epoch`; None if a plan on the way is gone."""
    for number in range(catalog.epoch + 1, epoch + 1):
        plan = final_plan(files, catalog.source, number)
        if plan is None:
            return None
        catalog = catalog.after(plan)
    return catalog


def save(files: CatalogFiles, catalog: Catalog, interval: int = INTERVAL) -> None:
    """Write the catalog down if its epoch is due for that."""
    if catalog.epoch and catalog.epoch % interval == 0:
        write(files, catalog)


def write(files: CatalogFiles, catalog: Catalog) -> None:
    """Write the catalog down, so that it can be read without the plans before it."""
    key = layout.checkpoint_key(catalog.source, catalog.epoch)
    text = json.dumps({"epoch": catalog.epoch, "records": dict(catalog.records)}, sort_keys=True)
    files.put_if_absent(key, text.encode())


def clean(files: CatalogFiles, source: str, epoch: int, needed_epochs: Collection[int] = ()) -> int:
    """Delete the plans and checkpoints that the last checkpoint at or before `epoch` replaces.

    Only the source's owner may call this, once no kept mark before that checkpoint needs its catalog any
    more; marks of the `needed` epochs do, and have checkpoints of their own. Returns the number of deleted
    files.
    """
    keys = _checkpoints(files, source, epoch)
    if not keys:
        return 0
    last = layout.plan_of(keys[-1])[0]
    spent = [key for key in keys[:-1] if layout.plan_of(key)[0] not in needed_epochs]
    spent += [key for key in files.list(layout.plans_folder(source)) if layout.plan_of(key)[0] <= last]
    for key in spent:
        files.delete(key)
    return len(spent)


def _checkpoints(files: CatalogFiles, source: str, epoch: int) -> list[str]:
    # Epochs stand in the names with leading zeros, so their order is the order of the names.
    limit = layout.checkpoint_key(source, epoch)
    return [key for key in files.list(layout.checkpoints_folder(source)) if key <= limit]


def _checkpoint(files: CatalogFiles, source: str, epoch: int) -> Catalog:
    keys = _checkpoints(files, source, epoch)
    data = files.get(keys[-1]) if keys else None
    if data is None:
        return Catalog(source)
    raw = json.loads(data)
    return Catalog(source, raw["epoch"], raw["records"])


def final_plan(files: CatalogFiles, source: str, epoch: int) -> Plan | None:
    """Return the last attempt at an epoch, the one whose mark was published; None if there is none."""
    final: bytes | None = None
    for attempt in itertools.count():
        data = files.get(layout.plan_key(source, epoch, attempt))
        if data is None:
            break
        final = data
    return None if final is None else Plan.from_json(final.decode())
