"""Seeded DDL between and amid changes of rows: every mark is exact, and history adds up.

steps of some authors ─► a mark ─► equal to the source?      again and again; then all of history
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

from headrace.core.errors import ShapeChanged
from headrace_testing import validators
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.evolve.author import Author
from tests.integration.mysql.mirrors.judging import kinds

pytestmark = pytest.mark.server

SEEDS = 1
KEYS = {"one": "PRIMARY KEY (id)", "two": "PRIMARY KEY (id)", "bag": "KEY (id)", "named": "UNIQUE (id)"}
MARKS = 6


@kinds("mysql")
@pytest.mark.parametrize(
    "number", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.full) for n in range(SEEDS, 40))]
)
def test_every_mark_is_exact_whatever_was_altered_before_it(
    mirror: Mirror, database: Database, seed: int, number: int
) -> None:
    with ExitStack() as stack:
        authors = [
            Author(stack.enter_context(database.connect(autocommit=True)), name, 1000 * seed + number, key)
            for name, key in KEYS.items()
        ]
        mirror.once()
        for mark in range(MARKS):
            for author in authors:
                author.script.append(f"-- before mark {mark}")
                for _ in range(1 + mark % 3):
                    author.step()
            _mirrored(mirror)
            wrong = validators.exact(mirror.lake, database.url(), values=True)
            assert wrong == [], _told(authors)
        assert validators.travelled(mirror.lake) == [], _told(authors)


def _mirrored(mirror: Mirror) -> None:
    """A mark that has all of the tables: a run asks once for those that changed, and may end before."""
    names = {str(mirror.place.table(name)) for name in KEYS}
    for _ in range(5):
        with suppress(ShapeChanged):
            mirror.once()
        if set(mirror.lake.at().mark.versions) == names:
            return
    raise AssertionError(f"no mark has all tables: {mirror.lake.at().mark.versions}")


def _told(authors: list[Author]) -> str:
    return "\n".join(line for author in authors for line in ["", *author.script])
