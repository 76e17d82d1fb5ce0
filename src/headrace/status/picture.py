"""The picture of each source of a lake: the owner's last word where there is one, else the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headrace.lake.format import statusfile
from headrace.lake.log.marks import Marks
from headrace.lake.read.lake import Lake

SILENT_SECONDS = 15.0
ENDED = ("stopped", "failed")


@dataclass(frozen=True, slots=True)
class Source:
    """How one source is doing."""

    name: str
    state: str
    age: float | None  # seconds since its owner spoke
    epoch: int
    position: Mapping[str, Any] | None = None
    slot: Mapping[str, Any] | None = None
    streamed: Mapping[str, int] | None = None  # transactions that come while they run
    snapshot: Mapping[str, Any] | None = None
    epochs: Mapping[str, Any] | None = None
    tables: Mapping[str, dict[str, Any]] = field(default_factory=dict)
    unmirrored: Mapping[str, str] = field(default_factory=dict)  # that the patterns match: code by name
    warnings: Mapping[str, str] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    owner: Mapping[str, Any] | None = None

    def as_record(self) -> dict[str, Any]:
        """The picture as `--json` prints it."""
        return {
            "state": self.state,
            "age_seconds": None if self.age is None else round(self.age, 3),
            "epoch": self.epoch,
            "position": self.position,
            "slot": self.slot,
            "streamed": self.streamed,
            "epochs": self.epochs,
            **(self.snapshot or {}),
            "tables": dict(self.tables),
            "unmirrored": dict(self.unmirrored),
            "warnings": dict(self.warnings),
            "error": self.error,
            "owner": self.owner,
        }


def pictures(path: str) -> list[Source]:
    """The picture of every source of a lake, also of one that never got to its first mark."""
    lake = Lake(path)
    return [_picture(lake, name) for name in sorted({*lake.sources(), *statusfile.sources(lake.store)})]


def _picture(lake: Lake, name: str) -> Source:
    newest = Marks(lake.store, name).newest()
    epoch = 0 if newest is None else newest.epoch
    status = statusfile.read(lake.store, name)
    if status is None or "tables" not in status.record:
        error = None if status is None else status.record.get("error")
        state = "never run" if status is None else str(status.record["state"])
        return Source(
            name,
            state,
            None if status is None else status.age,
            epoch,
            tables={} if newest is None else _recorded(lake, name),
            error=error,
        )
    record = status.record
    state = str(record["state"])
    if state not in ENDED and status.age > SILENT_SECONDS:
        state = f"silent (was {state})"
    return Source(
        name=name,
        state=state,
        age=status.age,
        epoch=epoch,
        position=record.get("position"),
        slot=record.get("slot"),
        streamed=record.get("streamed"),
        snapshot=record.get("snapshot"),
        epochs=record.get("epochs"),
        tables=record["tables"],
        unmirrored=record.get("unmirrored", {}),
        warnings=record.get("warnings", {}),
        error=record.get("error"),
        owner=record.get("owner"),
    )


def _recorded(lake: Lake, name: str) -> dict[str, dict[str, Any]]:
    """What the catalog says of the tables, where no run ever told more."""
    tables = {}
    for key, record in lake.catalog(name).items():
        if key.startswith("table/") and isinstance(record, dict):
            full = record["schema"]["full"]
            tables[record["name"]] = {
                "state": record["state"],
                "join": "rewind" if full else "skip",
                "held_transactions": record["held"],
                "since": record["since"],
                "rows": None,
                "last_change": None,
                "error": record["error"],
                "stopped_at": record.get("stopped_at"),
            }
    return tables
