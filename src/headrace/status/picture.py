"""The picture of each source of a lake: the owner's last word where there is one, else the catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.core.position import Position
from headrace.lake.format import statusfile
from headrace.lake.format.status import PositionStatus, SourceStatus, TableStatus, seconds_since
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.read.lake import Lake
from headrace.lake.read.positions import shown, spelling_of

SILENT_SECONDS = 15.0
DROPPED, NEVER_RUN = "dropped", "never run"
ENDED = ("stopped", "failed", DROPPED)


@dataclass(frozen=True, slots=True)
class Source:
    """The state of one source: what its owner said, how many seconds ago, and the lake's newest epoch.

    What grows with the clock (lag, ages) is as of `now`, whether or not its owner lives.
    """

    said: SourceStatus
    age: float | None
    epoch: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

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
    def runs(self) -> bool:
        """Tell whether somebody runs it, as far as its record shows."""
        ended = self.said.state in (*ENDED, NEVER_RUN)
        return not ended and self.age is not None and self.age <= SILENT_SECONDS

    @property
    def lag_seconds(self) -> float | None:
        """The seconds that the lake may be behind the source by now; None where nothing is known."""
        return self.said.lag_seconds(self.now)

    @property
    def contact_age(self) -> float | None:
        """The seconds since the source last answered."""
        return None if self.said.position is None else self.said.silent_seconds(self.now)

    @property
    def turn_age(self) -> float | None:
        """The seconds since the loop came round, while somebody runs the source."""
        return seconds_since(self.said.turned_at, self.now) if self.runs else None

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
        if record.get("position"):
            record["position"]["lag_seconds"] = _rounded(self.lag_seconds)
        return {
            "upstream": None,
            **record,
            "state": self.state,
            "age_seconds": _rounded(self.age),
            "contact_age_seconds": _rounded(self.contact_age),
            "turn_age_seconds": _rounded(self.turn_age),
            "epoch": self.epoch,
            **copies,
            "tables": record.get("tables") or {},
        }


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def pictures(path: str) -> list[Source]:
    """The picture of every source of a lake, also of one that never got to its first mark."""
    lake = Lake(path)
    return [_picture(lake, name) for name in sorted({*lake.sources(), *statusfile.sources(lake.store)})]


def _picture(lake: Lake, name: str) -> Source:
    newest = Marks(lake.store, name).newest()
    epoch = 0 if newest is None else newest.epoch
    status = statusfile.read(lake.store, name)
    said = SourceStatus(name, NEVER_RUN) if status is None else replace(status.said, source=name)
    source = Source(said, None if status is None else status.age, epoch)
    if newest is None or (said.tables is not None and (source.runs or _newest_epoch(said) == epoch)):
        return source
    recorded = _recorded(lake, name, newest)
    return replace(source, said=replace(said, tables=_merged(said.tables or {}, recorded)))


def _newest_epoch(said: SourceStatus) -> int | None:
    return None if said.epochs is None else said.epochs.newest


def _merged(said: Mapping[str, TableStatus], recorded: Mapping[str, TableStatus]) -> dict[str, TableStatus]:
    """The tables that the lake knows by now: commands have changed it since its last run ended."""
    same = {name: table for name, table in recorded.items() if name not in said}
    for name, table in recorded.items():
        if name in said:
            same[name] = said[name] if said[name].state == table.state else table
    return dict(sorted(same.items()))


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
