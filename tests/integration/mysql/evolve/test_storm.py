"""Authors of DDL and rows write all the time while the mirror runs and is killed: looks meet any statement.

authors   ═══════════════════════════════▶ rest
mirror    copy ── live ✝ live ── live ✝ live ── end   once, equal to the source
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, closing, suppress

import pytest

from headrace.core.errors import ShapeChanged
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.evolve.author import Author
from tests.integration.mysql.mirrors.judging import kinds
from tests.nursery import Nursery

pytestmark = pytest.mark.server

KEYS = {"one": "PRIMARY KEY (id)", "two": "PRIMARY KEY (id)", "bag": "KEY (id)"}
PAUSE = 0.15  # between two steps of an author


def _writing(author: Author, over: threading.Event) -> None:
    while not over.wait(PAUSE):
        author.step()


@kinds("mariadb", releases=True)
@pytest.mark.parametrize("kills", [1, pytest.param(8, marks=pytest.mark.full)])
def test_tables_that_are_altered_all_the_time_are_exact_in_the_end(
    mirror: Mirror, database: Database, nursery: Nursery, seed: int, kills: int
) -> None:
    over = threading.Event()
    with ExitStack() as stack:
        authors = [
            Author(stack.enter_context(database.connect(autocommit=True)), name, seed, key)
            for name, key in KEYS.items()
        ]
        mirror.once()
        writers = [threading.Thread(target=_writing, args=(author, over)) for author in authors]
        process = stack.enter_context(
            closing(Mirrored(mirror.path, mirror.place.url, *mirror.patterns, program=nursery.run))
        )
        process.start()
        for writer in writers:
            writer.start()
        try:
            for _ in range(kills):
                _onward(process)
                process.kill()
                process.start()
            _onward(process)
        finally:
            over.set()
            for writer in writers:
                writer.join()
        process.stop()
    told = "\n".join(line for author in authors for line in ["", *author.script])
    names = {str(mirror.place.table(name)) for name in KEYS}
    for _ in range(5):
        with suppress(ShapeChanged):
            mirror.once()
        if set(mirror.lake.at().mark.versions) == names:
            break
    assert set(mirror.lake.at().mark.versions) == names, told
    assert validators.exact(mirror.lake, database.url(), values=True) == [], told
    assert validators.consistent(mirror.lake) == [], told


def _onward(process: Mirrored, marks: int = 12) -> None:
    first = process.lake.marks()[-1].epoch
    process.until(lambda: process.lake.at().mark.epoch >= first + marks, "further marks", within=60)
