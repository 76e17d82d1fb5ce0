"""Seeded DDL between and amid changes of rows: every mark is exact, and history adds up.

steps of all authors ─► a mark ─► equal to the source?      again and again; then all of history

Most of a seed's time is a mirror's: so some seeds, of three tables each, are followed by one that runs on.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from headrace_testing import validators
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.evolve.author import Author
from tests.integration.pipeline.parts.comparing import unlike
from tests.integration.pipeline.serving import Served, serving

pytestmark = pytest.mark.server

SEEDS = 3  # beside each other in one mirror, each in tables of its own
TABLES = ("one", "two", "three")


@dataclass
class Beaten:
    """A mirror that runs, and a table that tells how far its marks are."""

    served: Served
    names: frozenset[str]
    beats: int = 0

    def onward(self) -> None:
        """Wait for a mark of now that has all of the tables."""
        self.beats += 1
        self.served.mirrors.database.execute("INSERT INTO beat DEFAULT VALUES", user="app")
        self.served.until(self._has_all, f"beat {self.beats} in a mark with all tables")

    def _has_all(self) -> bool:
        cut = self.served.mirrors.lake.at()
        return set(cut.mark.versions) == self.names and cut.arrow("public.beat").num_rows == self.beats


def _authors(mirrors: Mirrors, stack: ExitStack, first: int) -> list[Author]:
    """Three for each seed."""
    connection = stack.enter_context
    return [
        Author(connection(mirrors.database.connect(user="app")), f"{name}_{number % SEEDS}", number)
        for number in range(first, first + SEEDS)
        for name in TABLES
    ]


@pytest.mark.parametrize(
    ("first", "marks", "merge"),
    [
        (0, 4, "rewrite"),
        *(pytest.param(n, 8, "rewrite", marks=pytest.mark.full) for n in range(SEEDS, 60, SEEDS)),
        *(pytest.param(n, 8, "vectors", marks=pytest.mark.full) for n in range(0, 5 * SEEDS, SEEDS)),
    ],
)
def test_every_mark_is_exact_whatever_was_altered_before_it(
    mirrors: Mirrors, seed: int, first: int, marks: int, merge: str
) -> None:
    mirrors.options["merge"] = merge
    mirrors.database.execute("CREATE TABLE beat (id serial PRIMARY KEY)", user="app")
    with ExitStack() as stack:
        authors = _authors(mirrors, stack, 1000 * seed + first)
        mirrors.once()
        beaten = Beaten(stack.enter_context(serving(mirrors)), frozenset(mirrors.lake.at().mark.versions))
        for mark in range(marks):
            for author in authors:
                author.script.append(f"-- before mark {mark}")
                for _ in range(1 + mark % 3):
                    author.step()
            beaten.onward()
            assert unlike(mirrors, {each.table: each.names() for each in authors}) == [], _told(authors)
    assert validators.consistent(mirrors.lake, sample=3) == [], _told(authors)


def _told(authors: Sequence[Author]) -> str:
    return "\n".join(line for author in authors for line in ["", *author.script])
