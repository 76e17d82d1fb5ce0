"""The plan of an epoch: everything that one epoch will do to the lake, written down before it is done.

The pipeline makes plans; `headrace.lake.log.commit` carries them out. A plan is a value: whoever finds it
without its mark (the writer after a crash, or a successor) finishes exactly this plan, and needs no
stream, no spool and no determinism for it.

A plan holds file actions, not rows. `state` holds the catalog's records that change with the epoch
(the catalog is the fold of all plans that have a mark), so that what we know about tables and what
the tables hold can never disagree.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.core.records import on_disk, parse, to_record
from headrace.lake.format import layout
from headrace.lake.format.vector import Vector

Json = Any

# The usual sizes of what stands around the files of a plan, in bytes.
_AROUND, _LINE, _ACTION = 6_000, 700, 300


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file of a Delta table: what an Add action says of it."""

    path: str  # relative to the table's folder, as it stands in Delta's log
    size: int
    rows: int  # that stand in the file, also where a vector deletes some
    stats: str  # Delta's statistics, as JSON text
    vector: Vector | None = field(default=None, metadata=on_disk(sparse=True))


@dataclass(frozen=True, slots=True)
class TableStep:
    """A step of an epoch in one Delta table: one commit, at exactly `base + 1`.

    `base == -1` creates the table. `schema` (an Arrow schema, serialised and base64) is given when the
    step creates the table or replaces its schema, else None. `rewrite` says that the rows stay the same, in
    other files. A path in both `add` and `remove` is a file that stays, with another vector.
    """

    path: str  # the table's folder, relative to the lake
    base: int
    add: tuple[DataFile, ...] = ()
    remove: tuple[str, ...] = ()
    schema: str | None = None
    rewrite: bool = False

    @property
    def new_files(self) -> list[DataFile]:
        """The files that the epoch wrote; one that only changes its vector was there before."""
        there = frozenset(self.remove)
        return [file for file in self.add if file.path not in there]


@dataclass(frozen=True, slots=True)
class Plan:
    """One epoch of one source."""

    source: str
    epoch: int
    plan_id: str
    kind: str  # "takeover" | "copy" | "stream" | "empty" | "stop" | "withdraw" ...
    incarnation: int
    frontier: str  # exclusive; the source's own spelling
    time: int  # the last time that the mark holds: frontier - 1 for an LSN
    upstream_commit_ts: str | None = None  # ISO 8601, UTC
    transactions: int = 0
    changes: int = 0
    steps: tuple[TableStep, ...] = ()
    versions: Mapping[str, int] = field(default_factory=dict)  # of every table exact at the mark
    state: Mapping[str, Json] = field(default_factory=dict)  # catalog records; None removes one
    complete_until: str | None = None  # ISO 8601, UTC, as the source's own clock
    upstream_earliest_commit_ts: str | None = None  # ISO 8601, UTC

    @property
    def file_count(self) -> int:
        """The number of files that the epoch writes: the plan, the mark and its line, and those of steps."""
        return 3 + sum(1 + len(step.new_files) for step in self.steps)

    @property
    def size_bytes(self) -> int:
        """The bytes of these files; those of logs and of the plan are an estimate."""
        written = sum(file.size for step in self.steps for file in step.new_files)
        actions = sum(_action_bytes(file) for step in self.steps for file in step.add)
        return _AROUND + _LINE * len(self.steps) + written + actions

    def to_json(self) -> str:
        return json.dumps(to_record(self), separators=(",", ":"), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Plan:
        return parse(cls, text)


def _action_bytes(file: DataFile) -> int:
    """The bytes of a file's action in the plan and in the log; a vector's text stands there, too."""
    return 2 * (_ACTION + len(file.stats) + (0 if file.vector is None else len(file.vector.text)))


class Plans(Protocol):
    """The part of a `Store` that plans are read from."""

    def get(self, key: str) -> bytes | None: ...


def attempts(files: Plans, source: str, epoch: int) -> list[Plan]:
    """The plan of an epoch and its withdrawals, in order."""
    found: list[Plan] = []
    while (data := files.get(layout.plan_key(source, epoch, len(found)))) is not None:
        found.append(Plan.from_json(data.decode()))
    return found
