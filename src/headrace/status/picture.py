"""The picture of each source of a lake: its owner's last status if there is one, else the catalog.

It is made of JSON records alone, so that a small process can hold it: this module loads neither Arrow nor
delta-rs, and calls no source.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from headrace.core.position import Position
from headrace.core.records import from_record, to_record
from headrace.lake.format import formatfile, layout, mark_log, prooffile, statusfile
from headrace.lake.format.prooffile import TableProof
from headrace.lake.format.status import BOUNDS, PositionStatus, SourceStatus, TableStatus, seconds_since
from headrace.lake.log import catalog
from headrace.lake.read.positions import show_position, spelling_of
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.spool.process import has_ended

__all__ = [
    "BOUNDS",
    "DROPPED",
    "SourcePicture",
    "TableProof",
    "TableStatus",
    "open_lake",
    "pictures",
    "pictures_in",
]

SILENT_SECONDS = 15.0
DROPPED, NEVER_RUN = "dropped", "never run"
ENDED = ("stopped", "failed", DROPPED)


@dataclass(frozen=True, slots=True)
class SourcePicture:
    """The state of one source: its owner's last status, its age in seconds, and the lake's newest epoch.

    Lag and ages grow with the clock: they are as of `now`, even if the owner is gone.
    """

    status: SourceStatus
    age: float | None
    epoch: int
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    proofs: Mapping[str, TableProof] = field(default_factory=dict)  # of tables that were verified
    is_gone: bool = False  # the owner's process is known to have ended, whatever it wrote last

    @property
    def name(self) -> str:
        return self.status.source

    @property
    def state(self) -> str:
        """The state in the status; "silent (was ...)" if its owner is gone, or writes none any more."""
        return f"silent (was {self.status.state})" if self.is_silent else self.status.state

    @property
    def is_silent(self) -> bool:
        """Tell whether a run ended without a word: its process is gone, or wrote nothing for a while."""
        return not (self.status.state in (*ENDED, NEVER_RUN) or self.age is None or self.runs)

    @property
    def export_behind(self) -> float | None:
        """The seconds since exports to Iceberg began to fail; 0 if the last succeeded; None without any."""
        exported = self.status.iceberg
        if exported is None or not self.runs:
            return None
        return seconds_since(exported.behind_since, self.now) or 0.0

    @property
    def runs(self) -> bool:
        """Tell whether a run is alive, as far as the status shows."""
        ended = self.status.state in (*ENDED, NEVER_RUN)
        return not (ended or self.is_gone) and self.age is not None and self.age <= SILENT_SECONDS

    @property
    def lag_seconds(self) -> float | None:
        """The seconds that the lake may be behind the source by now; None if nothing is known."""
        return self.status.lag_seconds(self.now)

    @property
    def contact_age(self) -> float | None:
        """The seconds since the source last answered."""
        return None if self.status.position is None else self.status.silent_seconds(self.now)

    @property
    def turn_age(self) -> float | None:
        """The seconds since the loop's last turn; None while no run is alive."""
        return seconds_since(self.status.turned_at, self.now) if self.runs else None

    @property
    def position(self) -> PositionStatus | None:
        return self.status.position

    @property
    def tables(self) -> Mapping[str, TableStatus]:
        return self.status.tables or {}

    @property
    def unmirrored_tables(self) -> Mapping[str, str]:
        return self.status.unmirrored_tables

    @property
    def warnings(self) -> Mapping[str, str]:
        return self.status.warnings

    def to_json(self) -> dict[str, Any]:
        """The picture as `--json` prints it."""
        record = to_record(self.status)
        copies = record.pop("snapshot", {})
        for inside in ("source", "updated_at"):
            del record[inside]
        if record.get("position"):
            record["position"]["lag_seconds"] = _round(self.lag_seconds)
        return {
            "upstream": None,
            **record,
            "state": self.state,
            "age_seconds": _round(self.age),
            "contact_age_seconds": _round(self.contact_age),
            "turn_age_seconds": _round(self.turn_age),
            "epoch": self.epoch,
            **copies,
            "tables": record.get("tables") or {},
            "proofs": {name: to_record(proof) for name, proof in self.proofs.items()},
        }


def _round(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def pictures(path: str) -> list[SourcePicture]:
    """The picture of every source of a lake, even of one without a mark."""
    return pictures_in(open_lake(path))


def open_lake(path: str) -> Store:
    """Open a lake to look at it; raise if there is none, or if its format is too new."""
    store = open_store(path)
    formatfile.open_lake(store)
    return store


def pictures_in(store: Store) -> list[SourcePicture]:
    """The picture of every source of the lake in this store; raise if the lake is gone."""
    formatfile.open_lake(store)
    marked = {layout.unquote(name) for name in store.folders(layout.MARKS)}
    return [_picture(store, name) for name in sorted({*marked, *statusfile.sources(store)})]


def _picture(store: Store, name: str) -> SourcePicture:
    status = statusfile.read(store, name)
    said = SourceStatus(name, NEVER_RUN) if status is None else replace(status.record, source=name)
    source = SourcePicture(
        said,
        None if status is None else status.age,
        0,
        proofs=prooffile.read(store, name),
        is_gone=said.state not in (*ENDED, NEVER_RUN) and has_ended(said.owner),
    )
    told = _newest_epoch(said)
    if source.runs and told is not None:
        return replace(source, epoch=told)
    epoch = mark_log.newest_epoch(store, name)
    if not epoch or (said.tables is not None and (source.runs or told == epoch)):
        return replace(source, epoch=epoch)
    tables = _merge_tables(said.tables or {}, _recorded_tables(store, name, epoch))
    return replace(source, status=replace(said, tables=tables), epoch=epoch)


def _newest_epoch(said: SourceStatus) -> int | None:
    return None if said.epochs is None else said.epochs.newest


def _merge_tables(
    said: Mapping[str, TableStatus], recorded: Mapping[str, TableStatus]
) -> dict[str, TableStatus]:
    """The tables by now: commands may have changed the catalog since the last run ended."""
    same = {name: table for name, table in recorded.items() if name not in said}
    for name, table in recorded.items():
        if name in said:
            same[name] = said[name] if said[name].state == table.state else table
    return dict(sorted(same.items()))


def _altered_at(record: Mapping[str, Any] | None) -> str | None:
    return None if record is None else str(from_record(Position, record["at"]))


def _recorded_tables(store: Store, name: str, epoch: int) -> dict[str, TableStatus]:
    """The tables as the catalog records them."""
    tables, records = {}, catalog.load(store, name, epoch).records
    spelling, plan = spelling_of(records), catalog.final_plan(store, name, epoch)
    newest = None if plan is None else Position(plan.time + 1, plan.frontier)
    for key, record in records.items():
        if key.startswith("table/") and isinstance(record, dict):
            since, stopped = record["since"], record.get("stopped_at")
            at = None if stopped is None else from_record(Position, stopped)
            near = at or newest
            tables[record["name"]] = TableStatus(
                state=record["state"],
                join="rewind" if record["schema"]["full"] else "skip",
                held_transactions=record["held"],
                since=None if since is None or near is None else show_position(spelling, since, near),
                error=record["error"],
                stopped_at=None if at is None else str(at),
                stopped_since=record.get("stopped_since"),
                schema_version=record["schema"]["version"],
                schema_since=_altered_at(record.get("alteration")),
            )
    return tables
