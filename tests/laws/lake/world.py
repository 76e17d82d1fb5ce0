"""The shared world of the protocol's tests: an in-memory twin of a store, of Delta logs and of marks.

The twin knows what the real ones do and nothing more. In particular it *accepts* what delta-rs accepts (the
removal of a dead file, an older `txn`), so that only the machine's own checks stand between a wrong plan
and a wrong table. `tests/integration/lake` holds the twin against the real ones.

A file is a set of rows (numbers) in ascending order, a table version a set of live files with their vectors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headrace.lake.format import layout
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.format.vector import FileRows, Vector, deleted_rows, file_rows
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import Entry, Stamp

Rows = frozenset[int]


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a table: who made it, and what it holds."""

    entry: Entry
    live: frozenset[FileRows]
    epoch: int | None
    dead: frozenset[str] = frozenset()  # removals of files that were not live: never ours


@dataclass
class World:
    """Everything that writers share."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    tables: dict[str, list[Version]] = field(default_factory=dict)
    files: dict[str, Rows] = field(default_factory=dict)
    marks: list[Mark] = field(default_factory=list)
    mark_commits: int = 0
    _left: dict[FileRows, Rows] = field(default_factory=dict)
    durable_at_once: bool = False  # as of a bucket; otherwise as of a directory

    def rows(self, folder: str, version: int) -> Counter[int]:
        counted: Counter[int] = Counter()
        for file in self.tables[folder][version].live:
            counted.update(self.left(file))
        return counted

    def left(self, file: FileRows) -> Rows:
        """The rows of a file that its vector does not delete."""
        if file.vector is None:
            return self.files[file.path]
        if file not in self._left:
            rows = sorted(self.files[file.path])
            self._left[file] = self.files[file.path] - {rows[at] for at in deleted_rows("", file)}
        return self._left[file]

    def write_file(self, epoch: int, rows: Iterable[int]) -> DataFile:
        name = layout.file_name(epoch)
        self.files[name] = frozenset(rows)
        return DataFile(path=name, size=1, rows=len(self.files[name]), stats="{}")

    def commit(self, folder: str, version: Version, at: int) -> bool:
        log = self.tables.setdefault(folder, [])
        if len(log) != at:
            return False
        log.append(version)
        return True


class TwinFiles:
    """A store, as far as plans need it."""

    def __init__(self, world: World) -> None:
        self._world = world

    def put_if_absent(self, key: str, data: bytes) -> bool:
        return self._world.blobs.setdefault(key, data) is data

    def get(self, key: str) -> bytes | None:
        return self._world.blobs.get(key)

    @property
    def durable_at_once(self) -> bool:
        return self._world.durable_at_once

    def put(self, key: str, data: bytes) -> None:
        self._world.blobs[key] = data

    def list(self, prefix: str) -> tuple[str, ...]:
        return tuple(sorted(key for key in self._world.blobs if key.startswith(prefix + "/")))

    def delete(self, key: str) -> None:
        self._world.blobs.pop(key, None)

    def sync(self, keys: Iterable[str]) -> None:
        list(keys)

    def sync_all(self) -> None:
        return None


class TwinTable:
    """One writer's handle on a Delta table: it stands at the version of its last look."""

    def __init__(self, world: World, folder: str) -> None:
        self._world = world
        self._folder = folder
        self.version = -1

    def refresh(self) -> int:
        self.version = len(self._log) - 1
        return self.version

    def live(self) -> frozenset[str]:
        return frozenset(file.path for file in self.contents())

    def contents(self) -> frozenset[FileRows]:
        return self._log[self.version].live if self.version >= 0 else frozenset()

    def with_vector(self, path: str, vector: Vector) -> DataFile:
        return DataFile(path, 1, len(self._world.files[path]), "{}", vector)

    def entry(self, version: int) -> Entry | None:
        return self._log[version].entry if 0 <= version < len(self._log) else None

    def write(self, step: TableStep, stamp: Stamp) -> bool:
        assert self.version == step.base
        live = self.live()
        stay = frozenset(file for file in self.contents() if file.path not in step.remove)
        version = Version(
            entry=Entry(plan_id=stamp.plan_id, rewrite=False),
            live=stay | frozenset(map(file_rows, step.add)),
            epoch=stamp.epoch,
            dead=frozenset(step.remove) - live,
        )
        done = self._world.commit(self._folder, version, at=step.base + 1)
        self.refresh()
        return done

    def restoration(self, base: int) -> TableStep | None:
        then = self._log[base].live if base >= 0 else frozenset()
        back = tuple(DataFile(file.path, 1, 1, "{}", file.vector) for file in then - self.contents())
        gone = tuple(sorted(file.path for file in self.contents() - then))
        return TableStep(self._folder, self.version, back, gone) if back or gone else None

    def log_keys(self, version: int) -> list[str]:
        return [f"{self._folder}/{version}"]

    @property
    def _log(self) -> list[Version]:
        return self._world.tables.get(self._folder, [])


class TwinMarks:
    """One writer's handle on the marks."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._seen = 0

    def newest(self) -> Mark | None:
        self._seen = self._world.mark_commits
        return self._world.marks[-1] if self._world.marks else None

    def append(self, mark: Mark) -> bool:
        if self._seen != self._world.mark_commits:
            return False
        self._world.marks.append(mark)
        self._world.mark_commits += 1
        self._seen = self._world.mark_commits
        return True

    def new_keys(self) -> list[str]:
        return []
