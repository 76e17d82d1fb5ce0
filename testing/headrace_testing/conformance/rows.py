"""Changes of rows: one database and one mirror for all cases, copied, then followed.

make ── copy ── change ── stream ── end ── stream
             │                   │               │      at each: tables equal their source, a recording
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import pytest

from headrace_testing import validators
from headrace_testing.conformance.cases import BY_COPY, BY_STREAM, CASES, SHAPES, Case, Shape
from headrace_testing.conformance.mirror import Mirror, mirror_of
from headrace_testing.conformance.place import SourceUnderTest, session
from headrace_testing.timeline import Remembered
from headrace_testing.validators import Recording, Violation


@dataclass
class RowScene:
    """A mirror that went through all cases, and the observations on the way."""

    mirror: Mirror
    cases: tuple[Case, ...]
    violations: dict[str, list[Violation]] = field(default_factory=lambda: defaultdict(list))
    recordings: list[Recording] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)  # after the copy, after the changes, at the end

    @cached_property
    def judged(self) -> Remembered:
        """The lake at rest, which remembers what it was asked."""
        return Remembered(self.mirror.lake)

    def names(self, case: Case) -> list[str]:
        return [str(self.mirror.place.table(table)) for table in case.tables]

    def follow(self, driver_epochs: int) -> None:
        """Catch up, and compare each table with the source, which is at rest."""
        lake = self.mirror.once(driver_epochs=driver_epochs)
        for violation in validators.exact(lake, self.mirror.place.url, values=True):
            self.violations[violation.table].append(violation)
        self.epochs.append(lake.at().mark.epoch)
        self.record()

    def record(self) -> None:
        names = [name for case in self.cases for name in self.names(case)]
        self.recordings.append(validators.record(self.mirror.place.url, names))


@pytest.fixture(
    scope="module",
    params=[pytest.param(0, marks=pytest.mark.full, id="tasks"), pytest.param(20_000, id="driver")],
)
def row_scene(
    request: pytest.FixtureRequest, source: SourceUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RowScene]:
    """Run all cases; the driver does their epochs, or tasks do them all."""
    folder: Path = tmp_path_factory.mktemp("scene")
    with mirror_of(request, source, folder / "lake") as mirror:
        scene = RowScene(mirror, tuple(case for case in CASES if case.name not in source.lacks))
        with session(mirror.place) as writer:
            for case in scene.cases:
                case.make(writer)
            writer.commit()
        scene.follow(request.param)
        for case in scene.cases:
            case.change(mirror.place)
        scene.record()
        scene.follow(request.param)
        for case in scene.cases:
            case.end(mirror.place)
        scene.follow(request.param)
        yield scene


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_rows_are_those_of_the_source_after_the_copy_and_after_every_change(
    row_scene: RowScene, case: Case
) -> None:
    names = row_scene.names(case)
    assert [violation for name in names for violation in row_scene.violations[name]] == []
    assert set(names) <= row_scene.mirror.lake.at().mark.versions.keys()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_history_explains_every_mark_and_every_time_between(row_scene: RowScene, case: Case) -> None:
    lake, names = row_scene.judged, row_scene.names(case)
    assert validators.definite(lake, tables=names, of_many=row_scene.mirror.of_many) == []
    assert validators.travelled(lake, tables=names, sample=3) == []
    then = [
        Recording(each.position, {name: each.rows[name] for name in names})
        for each in row_scene.recordings[:-1]
    ]
    assert validators.exact_at(lake, then, values=True) == []


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.case.name)
def test_a_shape_is_copied_then_streamed_then_emptied(row_scene: RowScene, shape: Shape) -> None:
    """Check the row counts of each step, so that a run that did nothing fails."""
    [name] = row_scene.names(shape.case)
    copied, changed, end = (
        row_scene.mirror.lake.at(epoch=epoch).arrow(name).num_rows for epoch in row_scene.epochs
    )
    assert copied == len(shape.copied)
    assert len(BY_STREAM) - 4 < changed <= len(BY_COPY) + len(BY_STREAM) + 2
    assert end == 0


def test_no_mark_and_no_time_shows_a_part_of_a_transaction(row_scene: RowScene) -> None:
    schema = row_scene.mirror.place.table("any").schema
    assert validators.whole(row_scene.mirror.lake, schema=schema) == []
