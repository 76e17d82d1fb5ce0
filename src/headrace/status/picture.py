"""The picture of each source of a lake: the owner's last word where there is one, else the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headrace.core.position import Position
from headrace.lake.format import statusfile
from headrace.lake.format.status import PositionStatus, SourceStatus, TableStatus
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.read.lake import Lake
from headrace.lake.read.positions import shown, spelling_of

SILENT_SECONDS = 15.0
ENDED = ("stopped", "failed")


@dataclass(frozen=True, slots=True)
class Source:
    """The state of one source: what its owner said, how many seconds ago, and the lake's newest epoch."""

    said: SourceStatus
    age: float | None
    epoch: int

    @property
    def name(self) -> str:
        return self.said.source

    @property
    def state(self) -> str:
        """The owner's word; what it was if the owner says nothing more."""
        if self.age is None or self.said.state in ENDED or self.age <= SILENT_SECONDS or not self._speaks:
            return self.said.state
        return f"silent (was {self.said.state})"

    @property
    def _speaks(self) -> bool:
        return self.said.position is not None

    @property
    def position(self) -> PositionStatus | None:
        return self.said.position

    @property
    def tables(self) -> Mapping[str, TableStatus]:
        return self.said.tables or {}

    @property
    def unmirrored(self) -> Mapping[str, str]:
        return self.said.unmirrored

    @property
    def warnings(self) -> Mapping[str, str]:
        return self.said.warnings

    def as_record(self) -> dict[str, Any]:
        """The picture as `--json` prints it."""
        record = self.said.as_record()
        copies = record.pop("snapshot", {})
        for inside in ("source", "updated_at"):
            del record[inside]
        age = None if self.age is None else round(self.age, 3)
        return {
            "upstream": None,
            **record,
            "state": self.state,
            "age_seconds": age,
            "epoch": self.epoch,
            **copies,
            "tables": record.get("tables") or {},
        }


def pictures(path: str) -> list[Source]:
    """The picture of every source of a lake, also of one that never got to its first mark."""
    lake = Lake(path)
    return [_picture(lake, name) for name in sorted({*lake.sources(), *statusfile.sources(lake.store)})]


def _picture(lake: Lake, name: str) -> Source:
    newest = Marks(lake.store, name).newest()
    epoch = 0 if newest is None else newest.epoch
    status = statusfile.read(lake.store, name)
    said = SourceStatus(name, "never run") if status is None else replace(status.said, source=name)
    if said.tables is None and newest is not None:
        said = replace(said, tables=_recorded(lake, name, newest))
    return Source(said, None if status is None else status.age, epoch)


def _altered_at(record: Mapping[str, Any] | None) -> str | None:
    return None if record is None else str(Position.from_record(record["at"]))


def _recorded(lake: Lake, name: str, newest: Mark) -> dict[str, TableStatus]:
    """Read of the tables from the catalog, where no run ever told more."""
    tables, records = {}, lake.catalog(name)
    spelling = spelling_of(records)
    for key, record in records.items():
        if key.startswith("table/") and isinstance(record, dict):
            since, stopped = record["since"], record.get("stopped_at")
            at = None if stopped is None else Position.from_record(stopped)
            tables[record["name"]] = TableStatus(
                state=record["state"],
                join="rewind" if record["schema"]["full"] else "skip",
                held_transactions=record["held"],
                since=None if since is None else shown(spelling, since, at or newest.position),
                error=record["error"],
                stopped_at=None if at is None else str(at),
                schema_version=record["schema"]["version"],
                schema_since=_altered_at(record.get("alteration")),
            )
    return tables
