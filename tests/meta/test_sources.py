"""Every source has the same rooms and the same files at its door: who knows one finds the way in each."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.meta.tracked import python_files

ROOMS = {"session", "types", "catalog", "ddl", "copy", "stream", "decode", "preflight"}
BORROWED = {"queue": {"types"}}  # they are PostgreSQL's
FILES = {"source", "mirror", "stream_source", "declaration", "spelling", "position", "upstream", "capture"}
WITHOUT = {"mysql": {"capture"}}  # a binlog has the changes of every table
# The first file of a room that a reader opens.
FIRST = {"decode": {"changes", "context", "decoder"}, "copy": {"plan", "reader"}, "ddl": {"schema_check"}}
# The contract has a `source.py` of its own.
DOORS = [path.parent for path in python_files("src") if path.match("sources/*/source.py")]
SOURCES = [folder for folder in DOORS if folder.name != "contract"]


def _inside(folder: Path) -> tuple[set[str], set[str]]:
    """The files and the rooms of a folder."""
    inside = [path.relative_to(folder).parts for path in python_files("src") if path.is_relative_to(folder)]
    files = {parts[0].removesuffix(".py") for parts in inside if len(parts) == 1}
    return files - {"__init__"}, {parts[0] for parts in inside if len(parts) > 1}


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.name)
def test_a_source_has_the_rooms_of_every_source(source: Path) -> None:
    files, rooms = _inside(source)
    assert rooms == ROOMS - BORROWED.get(source.name, set())
    assert FILES - files == WITHOUT.get(source.name, set())
    for room, first in FIRST.items():
        assert first - _inside(source / room)[0] == set(), room


def test_the_sources_are_found() -> None:
    assert {each.name for each in SOURCES} == {"mysql", "postgres", "queue"}
