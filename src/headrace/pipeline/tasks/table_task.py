"""The values that travel between the driver and the tasks of an epoch: plain, pickled.

    TableTask    in   one table as the tasks need it: schema, folders, files, what to skip
    Part         mid  a group's share of one slice: events as Arrow IPC
    Outcome      out  what a task did for one table: new files, removed files, counts, a failure

Nothing here holds a connection, a password or a Spark object. Rows travel inside `SlicePart` only, as
opaque bytes between our own functions.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import TypeVar, cast

import pyarrow as pa

from headrace.core.chunks import ByChunk, KeySpan
from headrace.core.errors import HeadraceError
from headrace.core.handoff import Handoff
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.core.truncation import Truncations
from headrace.lake.format.plan import DataFile
from headrace.lake.format.vector import Vector
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store
from headrace.pipeline.tasks.routing import Routes
from headrace.sources.contract.decoder import TableFilter
from headrace.sources.contract.values import Json

T = TypeVar("T")

MASK64 = (1 << 64) - 1

Errors = tuple[bytes | DataFile, ...]  # rows for `errors/`: a few as Arrow IPC, many as files that are there


REWRITE = "rewrite"  # the rule by which no file gets a vector


@dataclass(frozen=True, slots=True)
class LakeAddress:
    """The address of the lake for a task: its URL and the options of its object store."""

    url: str
    options: tuple[tuple[str, str], ...] = ()

    def open(self) -> Store:
        """Its store."""
        return open_store(self.url, dict(self.options) or None)


class Merge(Enum):
    """The way a group's rows get into files (`tasks.merge`); `partition` sets it, once."""

    FILE = auto()
    VECTORS = auto()
    TRUNCATED = auto()
    REMAINDER = auto()
    KEYLESS = auto()
    KEYLESS_TRUNCATED = auto()
    KEYLESS_LATER = auto()


@dataclass(frozen=True, slots=True)
class TableTask:
    """One table in one epoch."""

    name: TableName
    schema: TableSchema
    folder: str
    history_folder: str
    errors_folder: str
    routes: Routes
    applied_until: int  # updates with a smaller time are in the table already
    handoff: Handoff | ByChunk | None = None  # what the copy already holds; None once the stream is past it
    raw_columns: tuple[int, ...] = ()  # columns that may hold, or meet, a value without a lake form
    strict: bool = False  # such a value stops the table
    incomplete: tuple[KeySpan, ...] = ()  # chunks of its copy that do not show a truncation which others show
    origins: bytes | None = None  # where rows that change keys were found (`core.origins`), packed or shared
    from_sorted_runs: bool = False  # its events come from `runs`: all history is the fold's
    truncations: Truncations = ()  # that take its rows in this epoch
    last_truncation: int = 0  # the time of the last one that the copy holds: what was before it is unknown
    complete_from: int = 0  # a time: what the copy holds up to there is in the stream in part only, if at all
    history_start: int = 0  # a time: up to there the copy holds all, and history tells none of it
    has_errors: bool = False  # errors/ may have rows of it
    merge: Merge = Merge.FILE  # of a group of it
    merge_rule: str = REWRITE  # the option `merge`, where the table can have vectors
    row_cache: int = 0  # bytes that it may take on the disk of whoever merges
    proves_history: bool = False  # what it tells is held against what becomes of the rows
    details: Json = field(default_factory=dict)  # the source's own, which the stream is compared with

    def table_filter(self, since: int | None = None) -> TableFilter:
        """The changes of it that are to be decoded: from where it stands on, or from a time."""
        first = self.applied_until if since is None else since
        return TableFilter(self.name, self.schema, first, self.history_start, self.details)

    @property
    def has_vectors(self) -> bool:
        """Tell whether its events go by key into one group, whose files may get vectors."""
        return self.merge_rule != REWRITE and not self.schema.is_multiset and not self.truncations

    def for_merge(self) -> TableTask:
        """Shrink the task for what follows decoding, since that may have very many parts."""
        return replace(self, details={})


@dataclass(frozen=True, slots=True)
class SlicePart:
    """The part of a slice for one group: `task` is set so that the group's merge needs nothing else."""

    epoch: int
    lake: LakeAddress
    task: TableTask  # its routes hold the group's own file, or no more than the group needs
    events: bytes


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a task wrote, and between which key codes its rows lie."""

    file: DataFile
    low: bytes
    high: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a task for one table. Outcomes add up: `combine` is associative and has a zero."""

    table: TableName
    add: tuple[NewFile, ...] = ()
    remove: tuple[str, ...] = ()
    vectors: tuple[tuple[str, Vector], ...] = ()  # files that stay, each with its vector from now on
    file_ways: tuple[tuple[str, int], ...] = ()  # so many files went which way (`merge_choice`)
    history: tuple[DataFile, ...] = ()
    errors: Errors = ()
    changes: int = 0
    held_count: int = 0
    rows: int = 0  # by how much the table grew
    expected_keys: tuple[int, int] = (0, 0)  # number and hash of the keys that must be in the table
    matched_keys: tuple[int, int] = (0, 0)  # and of those that were: both must agree
    balance: int = 0  # what history tells of its rows, less what became of them (`files.row_sum`)
    unforeseen: tuple[int, ...] = ()  # columns that met a value without a lake form and have no shadow
    unfit_columns: tuple[int, ...] = ()  # columns that have one, or met such a value
    incomplete: tuple[KeySpan, ...] = ()  # chunks that are to be copied again for a truncation's sake
    missing_values: bytes | None = None  # keys with a value that no copy holds: they are read again
    is_scattered: bool = False  # a value has to be looked up under another key: the origins are wanted
    last_commit_ts: int = 0
    last_truncation: int = 0  # as the task's
    failure: HeadraceError | None = None

    def combine(self, other: Outcome) -> Outcome:
        return replace(
            self,
            add=self.add + other.add,
            remove=self.remove + other.remove,
            vectors=self.vectors + other.vectors,
            file_ways=self.file_ways + other.file_ways,
            history=self.history + other.history,
            errors=self.errors + other.errors,
            changes=self.changes + other.changes,
            held_count=self.held_count + other.held_count,
            rows=self.rows + other.rows,
            expected_keys=_sum(self.expected_keys, other.expected_keys),
            matched_keys=_sum(self.matched_keys, other.matched_keys),
            balance=(self.balance + other.balance) & MASK64,
            unforeseen=tuple(sorted({*self.unforeseen, *other.unforeseen})),
            unfit_columns=tuple(sorted({*self.unfit_columns, *other.unfit_columns})),
            incomplete=self.incomplete + other.incomplete,
            missing_values=join_ipc(self.missing_values, other.missing_values),
            is_scattered=self.is_scattered or other.is_scattered,
            last_commit_ts=max(self.last_commit_ts, other.last_commit_ts),
            last_truncation=max(self.last_truncation, other.last_truncation),
            failure=self.failure or other.failure,
        )


@dataclass(slots=True)
class Outcomes:
    """The outcomes of an epoch, one a table."""

    tables: dict[TableName, Outcome] = field(default_factory=dict)

    def take(self, outcome: Outcome) -> None:
        known = self.tables.get(outcome.table)
        self.tables[outcome.table] = outcome if known is None else known.combine(outcome)


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], (one[1] + other[1]) & MASK64


def pack(value: object) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def unpack(data: bytes, kind: type[T]) -> T:
    value = pickle.loads(data)
    assert isinstance(value, kind), type(value)
    return value


def to_ipc(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return cast(bytes, sink.getvalue().to_pybytes())


def from_ipc(data: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


def join_ipc(one: bytes | None, other: bytes | None) -> bytes | None:
    """The rows of both, where either may be absent."""
    if one is None or other is None:
        return one if other is None else other
    return to_ipc(pa.concat_tables([from_ipc(one), from_ipc(other)]))
