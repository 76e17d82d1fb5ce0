"""Marks: the published cuts through a source's tables, in a Delta table of their own.

One row per mark, published as epochs 1, 2, 3, ... without a gap; maintenance leaves old ones out and puts
files together (`retain.mark_files`). What a mark says is true for ever: `versions` names every table that is
exact at it with the Delta version that holds exactly the contents at `time`. A table that is missing there is
not exact at that mark.

The commit protocol is built on two atomic operations, `newest` and `append`: `append` succeeds only if
nothing was committed since this object's last look. The protocol looked at the newest epoch then, so it knows
that its mark is the next one.

A lake of some weeks has hundreds of thousands of marks. `index` is all of them as a sequence that reads no
more files than are looked into: what Delta's log says of each file's epochs tells where a mark lies. Whoever
keeps a `Marks` reads only what came since its last look.

    file      epochs    max commit timestamp
    part-…    1-1000    12:16:40        ◄── blocks: files whose epochs overlap (another program may have
    part-…    1001-2000 12:33:20            compacted them as it liked) are one block
    e…2001    2001      …
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from threading import Lock
from typing import Any, overload

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.change_batch import TIMESTAMP
from headrace.core.position import Position
from headrace.lake.format import datafile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.format.vector import FileRows
from headrace.lake.log.table import LakeTable, Stamp, line_key
from headrace.lake.store.contract import Store

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
        pa.field("complete_until", TIMESTAMP),
        pa.field("upstream_earliest_commit_ts", TIMESTAMP),
    ]
)

# What is asked of the log about each file; of hundreds of thousands of files, anything else would cost.
_TIMESTAMP = "upstream_commit_ts"
_STATED = frozenset(
    ["path", "num_records", "min.epoch", "max.epoch", f"max.{_TIMESTAMP}", f"null_count.{_TIMESTAMP}"]
)
_EARLIEST = datetime.min.replace(tzinfo=UTC)

_MOST = 64 << 20  # bytes of marks in memory

# In the footer of a file of marks: no later thinning changes them (`retain.mark_files`).
FINAL = b"headrace.final"


@dataclass(frozen=True, slots=True)
class Mark:
    """A published cut: where the source was, and which version of each lake table is exact there.

    Every commit behind its frontier counts as later than `complete_until`, a moment of the source's own clock
    (`read.resolve`); None if that is unknown.
    """

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
    complete_until: datetime | None = None
    upstream_earliest_commit_ts: datetime | None = None

    @property
    def position(self) -> Position:
        """Return the position in the source's stream behind all that the mark holds."""
        return Position(self.time + 1, self.frontier)


def mark_of(plan: Plan, published_at: datetime) -> Mark:
    """Make the mark that finishes this plan."""
    return Mark(
        epoch=plan.epoch,
        incarnation=plan.incarnation,
        frontier=plan.frontier,
        time=plan.time,
        upstream_commit_ts=_moment(plan.upstream_commit_ts),
        published_at=published_at,
        transactions=plan.transactions,
        changes=plan.changes,
        versions=dict(plan.versions),
        kind=plan.kind,
        plan_id=plan.plan_id,
        complete_until=_moment(plan.complete_until),
        upstream_earliest_commit_ts=_moment(plan.upstream_earliest_commit_ts),
    )


def repeating(mark: Mark, source: str, epoch: int, plan_id: str, kind: str) -> Plan:
    """Make a plan without steps whose mark repeats this one."""
    return Plan(
        source=source,
        epoch=epoch,
        plan_id=plan_id,
        kind=kind,
        incarnation=mark.incarnation,
        frontier=mark.frontier,
        time=mark.time,
        upstream_commit_ts=_iso(mark.upstream_commit_ts),
        versions=dict(mark.versions),
        complete_until=_iso(mark.complete_until),
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)


@dataclass(frozen=True, slots=True)
class Block:
    """Files of marks whose epochs lie between `first` and `last`; no other block has such epochs.

    `latest` is not before any commit timestamp in it; None if that is unknown.
    """

    paths: tuple[str, ...]
    first: int
    last: int
    count: int
    latest: datetime | None


class MarkFiles:
    """The files of marks, which never change: what was read stays in memory up to a size."""

    def __init__(self, store: Store, folder: str) -> None:
        self._store = store
        self._folder = folder
        self.known: dict[tuple[str, ...], pa.Table] = {}
        self._size = 0

    def rows(self, paths: tuple[str, ...]) -> pa.Table:
        """The marks of some files, by epoch."""
        rows = self.known.get(paths)
        if rows is None:
            parts = [datafile.read(self._store, self._folder, FileRows(path), schema=MARKS) for path in paths]
            rows = pa.concat_tables(parts).sort_by("epoch")
            if self._size > _MOST:
                self.known, self._size = {}, 0
            self.known[paths] = rows
            self._size += rows.nbytes
        return rows

    def entries(self, path: str) -> Mapping[bytes, bytes]:
        """The footer's entries of a file."""
        return datafile.read_entries(self._store, self._folder, path)


class MarkIndex(Sequence[Mark]):
    """The marks of a source by epoch, as of one look; files are read when they are first looked into."""

    def __init__(self, files: MarkFiles, blocks: Sequence[Block]) -> None:
        self.files = files
        self.blocks = tuple(blocks)
        self._ends = list(accumulate(block.count for block in blocks))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    @overload
    def __getitem__(self, at: int) -> Mark: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Mark]: ...

    def __getitem__(self, at: int | slice) -> Mark | Sequence[Mark]:
        if isinstance(at, slice):
            start, stop, step = at.indices(len(self))
            if step == 1:
                return _marks(self.between(start, stop))
            return [self[index] for index in range(start, stop, step)]
        index = at + len(self) if at < 0 else at
        if not 0 <= index < len(self):
            raise IndexError(at)
        number = self.number(index)
        return _marks(self.rows(number).slice(index - self.start(number), 1))[0]

    def __iter__(self) -> Iterator[Mark]:
        for number in range(len(self.blocks)):
            yield from _marks(self.rows(number))

    def __reversed__(self) -> Iterator[Mark]:
        for number in reversed(range(len(self.blocks))):
            yield from reversed(_marks(self.rows(number)))

    def start(self, number: int) -> int:
        """Return the index of a block's first mark; behind the last block, that of the next mark."""
        return self._ends[number - 1] if number else 0

    def number(self, index: int) -> int:
        """The number of the block that has the mark at this index."""
        return bisect_right(self._ends, index)

    def between(self, start: int, stop: int) -> pa.Table:
        """The marks from one index up to another, as rows."""
        parts = [MARKS.empty_table()]
        while start < stop:
            number = self.number(start)
            first, end = self.start(number), min(stop, self.start(number + 1))
            parts.append(self.rows(number).slice(start - first, end - start))
            start = end
        return pa.concat_tables(parts)

    def final(self, number: int) -> bool:
        """Tell whether the files of a block say that no thinning changes their marks any more."""
        return all(FINAL in self.files.entries(path) for path in self.blocks[number].paths)

    def find(self, epoch: int) -> Mark | None:
        """The mark with this number; nothing is read but the block in which it may be."""
        number = bisect_right(self.blocks, epoch, key=lambda block: block.first) - 1
        if number < 0 or epoch > self.blocks[number].last:
            return None
        rows = self.rows(number)
        at: int = pc.index(rows["epoch"], epoch).as_py()
        return None if at < 0 else _marks(rows.slice(at, 1))[0]

    def count_to(self, epoch: int) -> int:
        """Count the marks up to this epoch; nothing is read but the block in which it may be."""
        number = bisect_right(self.blocks, epoch, key=lambda block: block.first) - 1
        if number < 0 or epoch >= self.blocks[number].last:
            return self.start(number + 1)
        earlier = pc.less_equal(self.rows(number)["epoch"], epoch)
        return self.start(number) + int(pc.sum(earlier).as_py())

    def rows(self, number: int) -> pa.Table:
        """The marks of a block, by epoch."""
        return self.files.rows(self.blocks[number].paths)


@dataclass(frozen=True, slots=True)
class _Look:
    """The marks as of a version of their table, with that version's line of the log."""

    version: int
    line: bytes | None
    index: MarkIndex
    paths: frozenset[str]


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
        self._files = MarkFiles(store, self.table.folder)
        self._last: _Look | None = None  # of `index`
        self._lock = Lock()

    def newest(self) -> Mark | None:
        """The mark of the highest epoch, as of a look taken now."""
        version = self.table.refresh()
        if version != self._seen:
            kept = self._index()
            self._newest = kept[-1] if kept else None
            paths = kept.blocks[-1].paths if kept else ()
            self._note(range(max(self._seen, version - 1) + 1, version + 1), paths)
            self._seen = version
        return self._newest

    def index(self) -> MarkIndex:
        """Every mark, by epoch, as of a look taken now; files are read where it is looked into.

        The log is read on from the last call if marks were only added since. Else the lake may have been
        replaced or restored, or its marks thinned or withdrawn, and the log is read anew.
        """
        with self._lock:
            look = None if self._last is None else self._read_on(self._last)
            if look is None:
                self.table = self.table if self._last is None else LakeTable(self.store, self.table.folder)
                self.table.refresh()
                look = self._look()
            self._last = look
            return look.index

    def _read_on(self, last: _Look) -> _Look | None:
        """Look again; None if more happened than that marks were added."""
        if not self._stands(last):
            return None
        if self.table.refresh() == last.version:
            return last
        look = self._look()
        return look if self._stands(last) and last.paths <= look.paths else None

    def _look(self) -> _Look:
        index, line = self._index(), self.store.get(line_key(self.table.folder, self.table.version))
        paths = frozenset(path for block in index.blocks for path in block.paths)
        return _Look(self.table.version, line, index, paths)

    def _stands(self, look: _Look) -> bool:
        """Tell whether the log still has the version of a look as it was."""
        return self.store.get(line_key(self.table.folder, look.version)) == look.line

    def all(self) -> list[Mark]:
        """Every mark, by epoch, as of a look taken now."""
        return list(self.index())

    def at(self, version: int) -> MarkIndex:
        """Every mark as of an older version of the table."""
        return MarkIndex(self._files, _blocks(self.table.at(version).describe()))

    def append(self, mark: Mark) -> bool:
        """Publish `mark` if nothing was committed here since the last `newest`; tell whether it was."""
        base = self._seen
        if self.table.version != base:
            return False
        name = layout.file_name(mark.epoch)
        file = datafile.write(self.store, self.table.folder, name, rows_of([mark]))
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

    def _index(self) -> MarkIndex:
        """Every mark as of the table's last look."""
        return MarkIndex(self._files, _blocks(self.table.describe()))

    def _note(self, versions: range, paths: Iterable[str]) -> None:
        self._new_keys += [key for version in versions for key in self.table.log_keys(version)]
        self._new_keys += [f"{self.table.folder}/{path}" for path in paths]


def _marks(rows: pa.Table) -> list[Mark]:
    return [Mark(**{**row, "versions": dict(row["versions"])}) for row in rows.to_pylist()]


def _blocks(files: pa.Table) -> list[Block]:
    """The live files as blocks, in the order of their epochs."""
    found: list[Block] = []
    stated = files.select([name for name in files.column_names if name in _STATED])
    for each in sorted(map(_block, stated.to_pylist()), key=lambda block: block.first):
        if found and each.first <= found[-1].last:
            each = _together(found.pop(), each)
        found.append(each)
    return found


def _block(file: Mapping[str, Any]) -> Block:
    """A file as a block of its own; without statistics it may hold any epoch."""
    return Block(
        paths=(file["path"],),
        first=_stat(file, "min.epoch", 0),
        last=_stat(file, "max.epoch", 1 << 63),
        count=file["num_records"],
        latest=_latest(file),
    )


def _stat(file: Mapping[str, Any], name: str, otherwise: int) -> int:
    stated = file.get(name)
    if stated is None:
        stated = layout.epoch_of(file["path"])
    return otherwise if stated is None else int(stated)


def _latest(file: Mapping[str, Any]) -> datetime | None:
    stated: datetime | None = file.get(f"max.{_TIMESTAMP}")
    if stated is None and file.get(f"null_count.{_TIMESTAMP}") == file["num_records"]:
        return _EARLIEST
    return stated


def _together(one: Block, other: Block) -> Block:
    known = one.latest is not None and other.latest is not None
    return Block(
        paths=(*one.paths, *other.paths),
        first=one.first,
        last=max(one.last, other.last),
        count=one.count + other.count,
        latest=max(one.latest, other.latest) if known else None,  # type: ignore[type-var]
    )


def rows_of(marks: Sequence[Mark]) -> pa.Table:
    """The marks as rows of their table."""
    rows = [{name: getattr(mark, name) for name in MARKS.names} for mark in marks]
    for row in rows:
        row["versions"] = list(row["versions"].items())
    return pa.Table.from_pylist(rows, schema=MARKS)
