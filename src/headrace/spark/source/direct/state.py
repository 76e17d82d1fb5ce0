"""The state folder of a query that reads a source directly: what it was offered, and who reads it.

    state.json                the folder's id; the source, its address without secrets, its planned objects
    owners/000001.json        one for each process that took the stream over; the last one reads it
    beginning.json            where the stream begins, its tables, the files of the snapshot
    snapshot/1-000001.arrow   a piece of the snapshot; the first number is the owner's
    batches/000002.json       a batch: its end, its slices; batch 1 is the snapshot
    stream/1-000002.raw       its bytes as they came
    committed.json            the last batch that Spark committed

A batch is offered once its files and its record are durable, and never changes afterwards: whoever asks for
it again gets the same bytes. Records are put with `put_if_absent`, so that of two owners one writes a batch.
A folder that lacks `beginning.json` has offered nothing: its stream begins anew.

Nothing here holds a password, or knows a kind of source.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace.core.handoff import HANDOFFS, AnySnapshot
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.core.records import from_record, parse, to_record
from headrace.core.schema import TableSchema
from headrace.ingest.last_commits import LastCommits
from headrace.lake.store.contract import Store
from headrace.lake.store.open import prove_atomic
from headrace.sources.contract.values import Json, TableDef

FORMAT = 1
STATE, BEGINNING, COMMITTED = "state.json", "beginning.json", "committed.json"
OWNERS, BATCHES, SNAPSHOT, STREAM = "owners", "batches", "snapshot", "stream"


@dataclass(frozen=True, slots=True)
class StateRecord:
    """The record of a folder: which stream it is of. Written before anything is made upstream."""

    format: int
    id: str
    kind: str
    address: str  # without secrets
    upstream: Json  # as planned
    patterns: tuple[str, ...]
    options: Mapping[str, str]
    is_typed: bool = False  # one table, in its own columns

    @property
    def spool(self) -> Path:
        """The folder of the stream's spools on the query's machine."""
        return Path(tempfile.gettempdir()) / f"headrace-direct-{self.id}"


@dataclass(frozen=True, slots=True)
class DirectTable:
    """A table of the stream, as it was defined at the beginning."""

    name: TableName
    number: int
    schema: TableSchema
    details: Json

    @classmethod
    def of(cls, table: TableDef) -> DirectTable:
        return cls(table.name, table.number, table.schema, table.details)

    @property
    def definition(self) -> TableDef:
        return TableDef(self.name, self.number, self.schema, self.details)


@dataclass(frozen=True, slots=True)
class SnapshotFile:
    """A piece of a table's rows."""

    table: int
    key: str
    rows: int


@dataclass(frozen=True, slots=True)
class Beginning:
    """The beginning of a stream: its server, its tables, and the snapshot that is its first batch.

    The snapshot holds some transactions of the batches up to `held_until`: the first batch takes them back.
    """

    identity: Json
    upstream: Json
    start: Position
    reference: int  # for `Source.decoder`
    tables: tuple[DirectTable, ...]
    files: tuple[SnapshotFile, ...]
    handoff: Json
    held_until: int  # a batch; 1 if it holds none

    @property
    def snapshot(self) -> AnySnapshot:
        """The test of which transactions the snapshot holds."""
        found: AnySnapshot = from_record(HANDOFFS, self.handoff)
        return found

    @property
    def filled_tables(self) -> frozenset[int]:
        """The tables that had rows, by number."""
        return frozenset(file.table for file in self.files)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice of a batch: its bytes in the batch's file, and the context for the decoder."""

    start: int
    stop: int
    crc: int
    context: Json


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch of whole transactions, all before the time `until`.

    The stream goes on at `end`. That lies before `until` where the source names no position there.
    """

    number: int
    key: str  # of its bytes
    end: Position
    until: int
    slices: tuple[SliceRecord, ...]
    changes: int
    last: LastCommits  # the newest commits up to its end
    filled_tables: tuple[int, ...] = ()  # the tables that have ever had a row, by number


@dataclass(slots=True)
class StateFolder:
    """A state folder, as one process uses it."""

    store: Store
    record: StateRecord
    owner: int = 0  # our number; 0: we only read
    beginning: Beginning | None = None  # None while nothing was offered
    newest: int = 0  # the newest batch
    committed_batch: int = 0  # the last batch that Spark committed
    _batches: dict[int, BatchRecord] = field(default_factory=dict)

    # --- who reads the stream ---------------------------------------------------------------------

    def take_over(self) -> None:
        """Become the owner: the process that had the stream before ends with an error at its next step."""
        self.owner = self._newest_owner()
        while True:
            self.owner += 1
            if self.store.put_if_absent(f"{OWNERS}/{self.owner:06d}.json", b"{}"):
                break
        self.load()

    def require_owner(self) -> None:
        """Raise if another process took the stream over."""
        if self.store.exists(f"{OWNERS}/{self.owner + 1:06d}.json"):
            raise _taken_over_error(self.store.url)

    def _newest_owner(self) -> int:
        return max((_number(key) for key in self.store.list(OWNERS)), default=0)

    # --- what was offered -------------------------------------------------------------------------

    def load(self) -> None:
        """Read how far the stream was offered and committed; an owner alone changes that."""
        data, begun = self.store.get(COMMITTED), self.store.get(BEGINNING)
        self.committed_batch = 0 if data is None else int(json.loads(data)["batch"])
        self.beginning = None if begun is None else parse(Beginning, begun)
        self.newest = 0
        if self.beginning is not None:
            self.newest = max((_number(key) for key in self.store.list(BATCHES)), default=1)

    def batch(self, number: int) -> BatchRecord:
        """Read a batch of the stream; the snapshot is none."""
        if number not in self._batches:
            data = self.store.get(_batch_key(number))
            if data is None:
                raise lost_files_error(self.store.url, f"batch {number}")
            self._batches[number] = parse(BatchRecord, data)
        return self._batches[number]

    def offer(self, batch: BatchRecord) -> None:
        """Make a batch durable, with its bytes; raises if another owner wrote it."""
        self.require_owner()
        self.store.sync([batch.key] if batch.slices else [])
        if not self.store.put_if_absent(_batch_key(batch.number), _json(batch)):
            raise _taken_over_error(self.store.url)
        self._batches[batch.number] = batch
        if self.beginning is not None:
            self.newest = batch.number

    def begin(self, beginning: Beginning) -> None:
        """Offer the snapshot, with all batches that it takes transactions of."""
        self.require_owner()
        self.store.sync([file.key for file in beginning.files])
        if not self.store.put_if_absent(BEGINNING, _json(beginning)):
            raise _taken_over_error(self.store.url)
        self.beginning, self.newest = beginning, beginning.held_until

    def commit(self, batch: int) -> None:
        """Remember that Spark has committed a batch, and delete what nobody asks for again.

        The record of the batch itself stays: it says where the stream goes on.
        """
        self.store.put(COMMITTED, json.dumps({"batch": batch}).encode())
        self.store.sync([COMMITTED])
        self.committed_batch = batch
        for key in (*self.store.list(STREAM), *self.store.list(BATCHES)):
            number = _number(key)
            if number < batch or (number == batch and key.startswith(STREAM)):
                self.store.delete(key)
        self._batches = {number: each for number, each in self._batches.items() if number >= batch}
        for key in self.store.list(SNAPSHOT):
            self.store.delete(key)

    def clear(self) -> None:
        """Delete what an owner left that never offered anything."""
        for folder in (SNAPSHOT, STREAM, BATCHES):
            for key in self.store.list(folder):
                self.store.delete(key)

    def remove(self) -> None:
        """Delete all of the folder's files, its record last."""
        for key in sorted(self.store.list(""), key=lambda key: key == STATE):
            self.store.delete(key)

    def end_of(self, number: int) -> Position:
        """The place in the stream where a batch ends; the snapshot ends where the stream begins."""
        assert self.beginning is not None
        return self.beginning.start if number < 2 else self.batch(number).end

    def file(self, folder: str, number: int, suffix: str) -> str:
        """The key of a new file of ours."""
        return f"{folder}/{self.owner}-{number:06d}.{suffix}"


def open_state(store: Store, record: StateRecord) -> StateFolder:
    """Open the folder, or make it of an empty one; refuse one of another stream."""
    known = read_state(store)
    if known is None:
        if not store.empty():
            raise _foreign_error(store.url)
        prove_atomic(store)
        if store.put_if_absent(STATE, _json(record)):
            return StateFolder(store, record)
        known = read_state(store)
        assert known is not None
    same = replace(known.record, id=record.id, address=record.address, upstream=record.upstream)
    if same != record:
        raise _other_stream_error(store.url, known.record)
    return known


def read_state(store: Store) -> StateFolder | None:
    """Read the folder's record; None if it has none."""
    data = store.get(STATE)
    if data is None:
        return None
    if json.loads(data).get("format") != FORMAT:
        raise Misconfigured(
            "DIRECT_STATE_FORMAT",
            f'the state "{store.url}" was written by another version of headrace',
            hint="use that version, or begin anew with a new state and a new checkpoint",
        )
    return StateFolder(store, parse(StateRecord, data))


def new_id() -> str:
    return uuid.uuid4().hex


def _batch_key(number: int) -> str:
    return f"{BATCHES}/{number:06d}.json"


def _number(key: str) -> int:
    return int(key.rpartition("/")[2].partition(".")[0].rpartition("-")[2])


def _json(record: object) -> bytes:
    return json.dumps(to_record(record)).encode()


# --- refusals -------------------------------------------------------------------------------------

_ANEW = 'begin anew with a new checkpoint and a new .option("state", ...); headrace drop --state DIR first'


def _foreign_error(url: str) -> Misconfigured:
    return Misconfigured(
        "DIRECT_STATE_FOREIGN",
        f'the state "{url}" is not empty, and headrace did not write what is there',
        hint="give each query an empty folder of its own, not the checkpoint and no lake",
    )


def _other_stream_error(url: str, known: StateRecord) -> Misconfigured:
    return Misconfigured(
        "DIRECT_STATE_DIFFERS",
        f'the state "{url}" belongs to a query with other options',
        detail=f"its tables: {', '.join(known.patterns) or '-'}; its own options: {dict(known.options)}",
        hint=f"give the options as before; or {_ANEW}",
    )


def _taken_over_error(url: str) -> Misconfigured:
    return Misconfigured(
        "DIRECT_STATE_TAKEN",
        f'another query reads the stream of the state "{url}" now',
        detail="it was started later",
        hint="let one query use a state: give the other one a state and a checkpoint of its own",
    )


def lost_files_error(url: str, what: str) -> Misconfigured:
    """The error of a batch, or a file of one, that the folder lacks."""
    return Misconfigured(
        "DIRECT_BATCH_GONE",
        f'the state "{url}" does not hold {what} any more',
        detail="Spark has committed it before, its files were deleted, or not every executor has this folder",
        hint=f"let all executors share the folder; or {_ANEW}",
    )


def other_state_error(url: str) -> Misconfigured:
    """The error of a checkpoint that another state was used with."""
    return Misconfigured(
        "DIRECT_OTHER_STATE",
        f'the checkpoint was made with another state than "{url}"',
        hint=f"give the state that belongs to it; or {_ANEW}",
    )


def older_state_error(url: str, newest: int, checkpoint_batch: int) -> Misconfigured:
    """The error of a state that is older than the checkpoint."""
    return Misconfigured(
        "DIRECT_STATE_OLDER",
        f'the state "{url}" is older than the checkpoint',
        detail=f"it ends at batch {newest}, the checkpoint at {checkpoint_batch}: is it a backup?",
        hint=_ANEW,
    )


def older_checkpoint_error(url: str, committed_batch: int, checkpoint_batch: int) -> Misconfigured:
    """The error of a checkpoint that is older than the state, or new."""
    return Misconfigured(
        "DIRECT_CHECKPOINT_OLDER",
        f'the checkpoint is older than the state "{url}": it begins behind batch {checkpoint_batch}, '
        f"and the batches up to {committed_batch} were committed and deleted",
        detail="it is new, or was restored from a backup",
        hint=f"give the checkpoint that belongs to the state; or {_ANEW}",
    )
