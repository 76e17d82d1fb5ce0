"""A mirror of a place without Spark, and the fixtures of the list."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.lake.format import statusfile
from headrace.lake.read.lake import Lake
from headrace.pipeline.commands.ask import ask
from headrace.pipeline.state import config
from headrace_testing.conformance.place import Place, SourceUnderTest
from headrace_testing.mirror_process import Program, interpreter
from headrace_testing.without_spark import jobs_in_process


@dataclass
class Mirror:
    """A place and its lake. Each call is a run of its own, which goes on where the last one ended."""

    place: Place
    path: Path
    of_many: bool = False  # a time is that of several transactions

    @property
    def lake(self) -> Lake:
        return Lake(self.path)

    @property
    def patterns(self) -> tuple[str]:
        """The pattern of all tables of the place."""
        return (f"{self.place.table('any').schema}.*",)

    def configuration(self, **source: Any) -> dict[str, Any]:
        main = {"url": self.place.url, "tables": list(self.patterns), "every": "0s", **source}
        return {"lake": {"path": str(self.path)}, "source": {"main": main}}

    def once(self, *, heal: bool = False, **source: Any) -> Lake:
        """Catch up with the source, with `heal` also from a lost position; return the lake."""
        try:
            headrace.mirror(self.configuration(**source), once=True, reconcile=heal)
        except pytest.fail.Exception as late:  # the test has no time left
            late.add_note(f"the run stood here: {statusfile.read(self.lake.store, 'main')}")
            raise
        return self.lake

    def stops(self, **source: Any) -> HeadraceError:
        """Run, and return the error that ends the run."""
        with pytest.raises(HeadraceError) as caught:
            self.once(**source)
        assert caught.value.hint
        return caught.value

    def ask(self, command: str, *tables: str) -> None:
        """Ask a lake at rest as `headrace tables ...` does."""
        names = [str(self.place.table(name)) for name in tables]
        ask(str(self.path), command, {"tables": names}, url=self.place.url)

    def verify(self) -> dict[str, str]:
        """Verify, and return the outcome of each table."""
        [verdict] = headrace.verify(config.parse(self.configuration()))
        return {table.name: table.outcome for table in verdict.tables}


@contextmanager
def mirror_of(request: pytest.FixtureRequest, source: SourceUnderTest, path: Path) -> Iterator[Mirror]:
    """An empty place of the source, and where its lake will be."""
    with source.place(request.getfixturevalue(source.server)) as place:
        yield Mirror(place, path, source.of_many)


# --- fixtures -----------------------------------------------------------------------------------


@pytest.fixture(scope="package", autouse=True)
def without_spark() -> Iterator[None]:
    """Run the jobs of mirrors in this process."""
    with pytest.MonkeyPatch.context() as patch:
        jobs_in_process(patch)
        yield


@pytest.fixture(autouse=True)
def leave_out_what_it_lacks(request: pytest.FixtureRequest, source: SourceUnderTest) -> None:
    """Skip what a source lacks: a whole test, or a case of it."""
    case = getattr(request.node, "callspec", None)
    ids = {request.node.originalname, *(case.id.split("-") if case else ())}
    for name in ids & source.lacks.keys():
        pytest.skip(source.lacks[name])


@pytest.fixture
def mirror(request: pytest.FixtureRequest, source: SourceUnderTest, tmp_path: Path) -> Iterator[Mirror]:
    """An empty place and its mirror."""
    with mirror_of(request, source, tmp_path / "lake") as made:
        yield made


@pytest.fixture
def program() -> Program:
    """The command line that tests kill and start again: `headrace`, but for Spark."""
    return interpreter("headrace_testing.without_spark")


@pytest.fixture
def program_without_spark(program: Program) -> Program:
    """The command line without Spark, where `program` is also tried with it."""
    return program
