"""A household whose marks are exported to an Iceberg catalog, and all that engines read of it there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pyarrow as pa

from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import formatfile
from headrace.lake.log.marks import Mark
from tests.iceberg import ENGINES, Engines, in_order, tags
from tests.integration.lake.household import NAMES, Household

TABLES = tuple(map(str, NAMES))


class Killed(BaseException):
    """Ends the code that it meets, as a kill does."""


@dataclass
class Exported:
    """A household whose marks are exported now and then."""

    household: Household
    tags: int = 60
    grace: timedelta = timedelta(hours=1)
    config: IcebergConfig = field(default_factory=IcebergConfig)
    _seen: dict[int, Mark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.exporter = Exporter(self.store, "main", self.lake_id, self.grace)
        self.exporter.attach(replace(self.config, tags=self.tags))

    @property
    def store(self) -> Any:
        return self.household.place.store

    @property
    def lake_id(self) -> str:
        return formatfile.open_lake(self.store).lake_id

    @property
    def engines(self) -> Engines:
        return Engines(self.household.path, self.config.properties.get("uri", ""))

    def live(self, epochs: int = 1) -> int:
        """Some epochs, and an export; the epoch of the mark that it was."""
        self.household.live(epochs)
        mark = self.exporter.export()
        assert mark is not None
        assert self.times
        return mark.epoch

    def wrong(self, engines: tuple[str, ...] = ENGINES) -> list[str]:
        """List where an engine reads other rows at a tag than the source had then."""
        found = []
        for name in TABLES:
            table = self.engines.table(name)
            for epoch, snapshot in tags(table).items():
                [time] = [mark.time for mark in self.times if mark.epoch == epoch]
                rows = self.household.state(time)[NAMES[TABLES.index(name)]]
                ours = in_order(pa.table({"id": list(rows), "v": list(rows.values())}))
                found += [
                    f"{name} at {epoch} in {engine}"
                    for engine in engines
                    if in_order(self.engines.read(engine, table, snapshot)) != ours
                ]
        return found

    @property
    def times(self) -> list[Mark]:
        """The marks that ever were seen; maintenance removes some."""
        self._seen |= {mark.epoch: mark for mark in self.household.lake.marks()}
        return list(self._seen.values())

    def unreadable(self) -> list[str]:
        """The listed snapshots of any table that pyiceberg can't read whole."""
        found = []
        for table in self.engines.tables():
            for snapshot in table.metadata.snapshots:
                try:
                    table.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
                except Exception as error:  # noqa: BLE001 - whatever it is, it is what a reader sees
                    found.append(f"{table.name()} {snapshot.snapshot_id}: {error}")
        return found
