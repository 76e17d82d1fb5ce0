"""Scenes for the commit machine: who acts, and what a reader of the world must find at every moment.

A scene has writers that fight for a source, and whoever disturbs them: a compaction by another program, an
intruder that changes data, an owner that cleans old plans away. After *each* step of a run the world is
checked as a reader would see it then; at its end a last, undisturbed writer must get on from there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from headrace.lake.format import layout
from headrace.lake.format.plan import DataFile, Plan
from headrace.lake.format.vector import FileRows, file_rows
from headrace.lake.log import catalog
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import Entry
from tests.laws.lake.schedule import Actor, Choices, RandomChoices, run
from tests.laws.lake.world import TwinFiles, TwinMarks, TwinTable, Version, World
from tests.laws.lake.writers import (
    HISTORY,
    SOURCE,
    Bench,
    Writer,
    compactor,
    contents,
    folder,
    mark_compactor,
)

Body = Callable[[Actor], None]


class Stage(Protocol):
    """A world of either kind, in which a cast plays."""

    @property
    def bench(self) -> Bench: ...

    def writer(self, epochs: int = 2, *, tidy: bool = False) -> Writer: ...


Cast = Callable[[Stage], dict[str, Body]]


class Twin:
    """The bench of the in-memory world."""

    def __init__(self, world: World) -> None:
        self.world = world

    def open(self) -> Any:
        return TwinFiles(self.world), TwinMarks(self.world), lambda path: TwinTable(self.world, path)

    def write_file(self, folder: str, epoch: int, rows: set[int]) -> DataFile:
        return self.world.write_file(epoch, rows)

    def rows_of(self, folder: str, file: FileRows) -> set[int]:
        return set(self.world.left(file))

    def schema(self) -> str | None:
        return "any"

    def length(self, folder: str) -> int:
        return len(self.world.tables.get(folder, []))

    def disturb(self, folder: str, length: int, *, faithful: bool) -> bool:
        live = self.world.tables[folder][length - 1].live
        rows = set().union(*map(self.world.left, live)) | (set() if faithful else {-1})
        file = self.world.write_file(0, rows)
        version = Version(Entry(None, rewrite=faithful), frozenset({file_rows(file)}), None)
        return self.world.commit(folder, version, length)

    def compact_marks(self) -> None:
        self.world.mark_commits += 1


class Scene:
    """One world, its writers, and what a reader of it must always find."""

    def __init__(self, *, durable_at_once: bool = False) -> None:
        self.world = World(durable_at_once=durable_at_once)
        self.bench = Twin(self.world)
        self.published: list[tuple[Plan, Mark]] = []
        self._checked = 0

    def writer(self, epochs: int = 2, *, tidy: bool = False) -> Writer:
        return Writer(self.bench, epochs, self.published, tidy=tidy)

    def check(self) -> None:
        marks = self.world.marks
        for number, mark in enumerate(marks[self._checked :], self._checked + 1):
            assert mark.epoch == number, "marks without a gap"
            for table, version in mark.versions.items():
                held = self.world.rows(folder(table), version)
                assert held == contents(table, int(mark.frontier)), (table, mark)
        self._checked = len(marks)
        if marks and HISTORY in self.world.tables:
            self._check_history(int(marks[-1].frontier))

    def _check_history(self, frontier: int) -> None:
        newest = len(self.world.tables[HISTORY]) - 1
        held = self.world.rows(HISTORY, newest)
        assert Counter({row: n for row, n in held.items() if row < frontier}) == Counter(range(frontier))

    def check_end(self) -> None:
        """Let a last, undisturbed writer go on, and check what can be judged only when all is over."""
        before = int(self.world.marks[-1].frontier) if self.world.marks else 0
        run({"closer": self.writer(epochs=4)}, Choices(), self.check)
        marks = self.world.marks
        assert int(marks[-1].frontier) >= before + 4, "the next writer gets on"
        assert [mark.frontier for mark in marks] == sorted((m.frontier for m in marks), key=int)
        for plan, mark in self.published:
            assert marks[mark.epoch - 1] == mark, "what was acknowledged stays published"
            assert mark.plan_id == plan.plan_id
            assert mark.frontier == plan.frontier
        self._check_plans()
        self._check_commits()

    def _check_plans(self) -> None:
        files = TwinFiles(self.world)
        newest = self.world.marks[-1]
        assert catalog.load(files, SOURCE, newest.epoch).records["frontier"] == newest.frontier
        for mark in self.world.marks[self._cleaned() :]:
            attempts = list(self._attempts(mark.epoch))
            assert attempts[-1].plan_id == mark.plan_id
            assert all(plan.kind == "withdraw" for plan in attempts[1:])

    def _cleaned(self) -> int:
        """Up to here plans may be gone, or put again by a writer that was fenced right after."""
        keys = TwinFiles(self.world).list(layout.checkpoints_folder(SOURCE))
        return max((layout.plan_of(key)[0] for key in keys), default=0)

    def _attempts(self, epoch: int) -> Iterator[Plan]:
        for key, data in sorted(self.world.blobs.items(), key=_by_attempt):
            if "/epochs/" in key and layout.plan_of(key)[0] == epoch:
                yield Plan.from_json(data.decode())

    def _check_commits(self) -> None:
        cleaned = self._cleaned()
        for path, log in self.world.tables.items():
            for version in log:
                assert not version.dead, f"{path}: a commit removed a file that was not live"
                if version.epoch is None:
                    continue
                ids = {plan.plan_id for plan in self._attempts(version.epoch)}
                if version.epoch > cleaned:
                    assert version.entry.plan_id in ids, "a commit of no plan of its epoch"


def _by_attempt(item: tuple[str, bytes]) -> tuple[int, int]:
    key, _ = item
    return layout.plan_of(key) if "/epochs/" in key else (0, 0)


def _two(scene: Stage) -> dict[str, Body]:
    return {"one": scene.writer(), "two": scene.writer()}


def _with_compaction(scene: Stage) -> dict[str, Body]:
    return {
        "one": scene.writer(),
        "two": scene.writer(),
        "compactor": compactor(scene.bench, folder("b")),
        "marks": mark_compactor(scene.bench),
    }


def _with_compactions_everywhere(scene: Stage) -> dict[str, Body]:
    compactors = {path: compactor(scene.bench, path) for path in (HISTORY, folder("a"), folder("b"))}
    return {"one": scene.writer(), "two": scene.writer(), **compactors}


def _with_intruder(scene: Stage) -> dict[str, Body]:
    intruder = compactor(scene.bench, folder("b"), faithful=False)
    return {"one": scene.writer(), "two": scene.writer(), "intruder": intruder}


def _with_tidy_owners(scene: Stage) -> dict[str, Body]:
    return {"one": scene.writer(tidy=True), "two": scene.writer(tidy=True)}


CASTS: dict[str, Cast] = {
    "two writers": _two,
    "two writers and a compaction": _with_compaction,
    "two writers and compactions everywhere": _with_compactions_everywhere,
    "two writers and an intruder": _with_intruder,
    "two writers that clean up": _with_tidy_owners,
}


def play(cast: Cast, choices: Choices | RandomChoices) -> int:
    """One run in a new world, checked at every step and at its end; returns how long it was."""
    scene = Scene()
    steps = run(cast(scene), choices, scene.check)
    scene.check_end()
    return steps
