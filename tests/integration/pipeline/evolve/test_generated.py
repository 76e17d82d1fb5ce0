"""Seeded DDL between and amid changes of rows: every mark is exact, and history adds up.

steps of three authors ─► a mark ─► equal to the source?      again and again; then all of history
"""

from __future__ import annotations

from contextlib import ExitStack, suppress

import psycopg
import pytest

from headrace.core.errors import ShapeChanged
from headrace.testing import validators
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.evolve.author import Author

pytestmark = pytest.mark.server

SEEDS = 1  # beside those of `test_troubled`
TABLES = ("one", "two", "three")
MARKS = 8


def _connected(mirrors: Mirrors, stack: ExitStack) -> psycopg.Connection:
    connection = stack.enter_context(mirrors.database.connect(user="app"))
    assert connection.autocommit
    return connection


@pytest.mark.parametrize(
    "number", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.full) for n in range(SEEDS, 60))]
)
def test_every_mark_is_exact_whatever_was_altered_before_it(mirrors: Mirrors, seed: int, number: int) -> None:
    with ExitStack() as stack:
        authors = [Author(_connected(mirrors, stack), name, 1000 * seed + number) for name in TABLES]
        mirrors.once()
        for mark in range(MARKS):
            for author in authors:
                author.script.append(f"-- before mark {mark}")
                for _ in range(1 + mark % 3):
                    author.step()
            _mirrored(mirrors)
            wrong = validators.exact(mirrors.lake, mirrors.database.url(), values=True)
            assert wrong == [], _told(authors)
        assert validators.definite(mirrors.lake) == [], _told(authors)
        assert validators.travelled(mirrors.lake) == [], _told(authors)


def _mirrored(mirrors: Mirrors) -> None:
    """A mark that has all of the tables: a run asks once for those that changed, and may end before."""
    names = {f"public.{name}" for name in TABLES}
    for _ in range(5):
        with suppress(ShapeChanged):
            mirrors.once()
        if set(mirrors.lake.at().mark.versions) == names:
            return
    raise AssertionError(f"no mark has all tables: {mirrors.lake.at().mark.versions}")


def _told(authors: list[Author]) -> str:
    return "\n".join(line for author in authors for line in ["", *author.script])
