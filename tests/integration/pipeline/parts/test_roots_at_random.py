"""Trees that are altered at random, between marks and beside them: each mark is what the roots show."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress

import psycopg
import pytest

from headrace.core.errors import HeadraceError
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts.comparing import unlike
from tests.integration.pipeline.parts.tree_author import TreeAuthor
from tests.integration.pipeline.verifying import outcomes, verified

pytestmark = pytest.mark.server

TABLES = ("keyed", "whole")  # with a primary key; without one, by identity FULL
MARKS = 5


def _authors(database: Database, stack: ExitStack, seed: int) -> list[TreeAuthor]:
    found = []
    for number, table in enumerate(TABLES):
        connection = stack.enter_context(database.connect(user="app"))
        author = TreeAuthor(connection, table, 10 * seed + number)
        author.begin(full=table == "whole")
        found.append(author)
    return found


def _mirrored(mirrors: Mirrors, authors: Sequence[TreeAuthor]) -> None:
    """A mark with all of the tables; a run may end before it has taken one up, or be refused its identity."""
    for _ in range(6):
        with suppress(HeadraceError):
            mirrors.once(*(f"public.{table}" for table in TABLES))
        if len(mirrors.lake.at().mark.versions) == len(TABLES):
            return
        for author in authors:
            author.mend()
    raise AssertionError(f"no mark has all tables: {mirrors.lake.at().mark.versions}\n{_told(authors)}")


def _columns(authors: Sequence[TreeAuthor]) -> dict[str, list[str]]:
    return {author.table: author.names() for author in authors}


def _told(authors: Sequence[TreeAuthor]) -> str:
    return "\n".join(line for author in authors for line in ["", *author.script])


@pytest.mark.parametrize("handoff", ["slot", pytest.param("chunks", marks=pytest.mark.full)])
@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 20))])
def test_every_mark_is_what_the_root_shows_whatever_became_of_its_tree(
    mirrors: Mirrors, seed: int, number: int, handoff: str
) -> None:
    mirrors.options = {"handoff": handoff}
    with ExitStack() as stack:
        authors = _authors(mirrors.database, stack, 1000 * seed + number)
        _mirrored(mirrors, authors)
        for mark in range(MARKS):
            for author in authors:
                author.script.append(f"-- before mark {mark}")
                for _ in range(1 + mark % 4):
                    author.step()
            _mirrored(mirrors, authors)
            assert unlike(mirrors, _columns(authors)) == [], _told(authors)
        assert validators.consistent(mirrors.lake) == [], _told(authors)


@contextmanager
def _altering(authors: Sequence[TreeAuthor]) -> Iterator[None]:
    """All of the authors at once, as fast as they can, until the block ends."""
    stop = threading.Event()

    def alter(author: TreeAuthor) -> None:
        while not stop.is_set():
            with suppress(psycopg.Error):
                author.step()
            author.idle()

    writers = [threading.Thread(target=alter, args=(author,)) for author in authors]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        stop.set()
        for writer in writers:
            writer.join()


def test_trees_that_are_altered_beside_a_run_are_exact_in_the_end(mirrors: Mirrors, seed: int) -> None:
    with ExitStack() as stack:
        authors = _authors(mirrors.database, stack, seed)
        beside = [
            TreeAuthor(
                stack.enter_context(mirrors.database.connect(user="app")), table, seed + 7, rows_only=True
            )
            for table in TABLES
        ]
        _mirrored(mirrors, authors)
        with _altering([*authors, *beside]):
            for _ in range(3):
                with suppress(HeadraceError):
                    mirrors.once(*(f"public.{table}" for table in TABLES))
        _mirrored(mirrors, authors)
        assert unlike(mirrors, _columns(authors)) == [], _told(authors)
        assert outcomes(verified(mirrors)) == {f"public.{table}": "equal" for table in TABLES}
        assert validators.definite(mirrors.lake) == [], _told(authors)
