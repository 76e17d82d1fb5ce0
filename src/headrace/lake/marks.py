"""Marks: the published cuts through a source's tables, in a Delta table of their own.

One row per mark, epochs 1, 2, 3, ... without a gap; `marks/<source>/` is append-only. What a mark says is
true for ever: `versions` names every table that is exact at it with the Delta version that holds exactly
the contents at `time`. A table that is missing there is not exact at that mark.

`newest` and `append` are the two atomic operations that the commit machine is built on: `append` succeeds
only if nothing was committed since this object's last look, so the machine, which looked at the newest
epoch there, knows that its mark is the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa

from headrace.core.changes import TIMESTAMP
from headrace.lake import datafile, layout, schemas
from headrace.lake.plan import Plan, TableStep
from headrace.lake.store import Store
from headrace.lake.table import LakeTable, Stamp

MARKS = pa.schema(
    [
        pa.field("epoch", pa.int64(), nullable=False),
        pa.field("incarnation", pa.int64(), nullable=False),
        pa.field("frontier", pa.string(), nullable=False),
        pa.field("time", pa.int64(), nullable=False),
        pa.field("upstream_commit_ts", TIMESTAMP),
        pa.field("published_at", TIMESTAMP, nullable=False),
        pa.field("transactions", pa.int64(), nullable=False),
        pa.field("changes", pa.int64(), nullable=False),
        pa.field("versions", pa.map_(pa.string(), pa.int64()), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("plan_id", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Mark:
    """A published cut: where the source was, and which version of each lake table is exact there."""

    epoch: int
    incarnation: int
    frontier: str
    time: int
    upstream_commit_ts: datetime | None
    published_at: datetime
    transactions: int
    changes: int
    versions: Mapping[str, int] = field(default_factory=dict)
    kind: str = "stream"
    plan_id: str = ""


def mark_of(plan: Plan, published_at: datetime) -> Mark:
    """The mark that finishes this plan."""
    upstream = plan.upstream_commit_ts
    return Mark(
        epoch=plan.epoch,
        incarnation=plan.incarnation,
        frontier=plan.frontier,
        time=plan.time,
        upstream_commit_ts=None if upstream is None else datetime.fromisoformat(upstream).astimezone(UTC),
        published_at=published_at,
        transactions=plan.transactions,
        changes=plan.changes,
        versions=dict(plan.versions),
        kind=plan.kind,
        plan_id=plan.plan_id,
    )


class Marks:
    """The marks table of one source."""

    def __init__(self, store: Store, source: str) -> None:
        self.store = store
        self.source = source
        self.table = LakeTable(store, layout.marks_folder(source))
        # The version of the table at our last look. Not the handle's own: a refused write moves that on.
        self._seen = -1
        self._newest: Mark | None = None
        self._new_keys: list[str] = []

    def newest(self) -> Mark | None:
        """The mark of the highest epoch, as of a look taken now."""
        version = self.table.refresh()
        if version != self._seen:
            self._newest = self._last()
            self._note(range(max(self._seen, version - 1) + 1, version + 1), self._last_paths())
            self._seen = version
        return self._newest

    def all(self) -> list[Mark]:
        """Every mark, by epoch, as of a look taken now."""
        self.table.refresh()
        return self._read(sorted(self.table.files()))

    def append(self, mark: Mark) -> bool:
        """Publish `mark` if nothing was committed here since the last `newest`; tell whether it was."""
        base = self._seen
        if self.table.version != base:
            return False
        name = layout.file_name(mark.epoch)
        file = datafile.write(self.store, self.table.folder, name, _row(mark))
        schema = schemas.encode(MARKS) if base < 0 else None
        step = TableStep(path=self.table.folder, base=base, add=(file,), schema=schema)
        stamp = Stamp(app=f"headrace/{self.source}", epoch=mark.epoch, plan_id=mark.plan_id)
        if not self.table.write(step, stamp):
            return False
        self._newest, self._seen = mark, base + 1
        self._note(range(base + 1, base + 2), [name])
        return True

    def new_keys(self) -> list[str]:
        """The files that hold what was seen to be published since the last call."""
        keys, self._new_keys = self._new_keys, []
        return keys

    def _note(self, versions: range, paths: list[str]) -> None:
        self._new_keys += [key for version in versions for key in self.table.log_keys(version)]
        self._new_keys += [f"{self.table.folder}/{path}" for path in paths]

    def _last(self) -> Mark | None:
        marks = self._read(self._last_paths())
        return marks[-1] if marks else None

    def _last_paths(self) -> list[str]:
        """The files in which the newest mark must be."""
        # A file's name tells its epoch; a file with another name is a compaction, of whichever marks.
        paths = sorted(self.table.files())
        ours = [path for path in paths if layout.epoch_of(path) is not None]
        others = [path for path in paths if layout.epoch_of(path) is None]
        return [*others, *ours[-1:]]

    def _read(self, paths: list[str]) -> list[Mark]:
        tables = [datafile.read(self.store, self.table.folder, path, schema=MARKS) for path in paths]
        rows: list[dict[str, Any]] = [row for table in tables for row in table.to_pylist()]
        marks = [Mark(**{**row, "versions": dict(row["versions"])}) for row in rows]
        return sorted(marks, key=lambda mark: mark.epoch)


def _row(mark: Mark) -> pa.Table:
    values = {name: getattr(mark, name) for name in MARKS.names}
    values["versions"] = list(mark.versions.items())
    return pa.Table.from_pylist([values], schema=MARKS)
