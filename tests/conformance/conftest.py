"""The list of `headrace_testing.conformance`, on each of our sources in turn."""

from __future__ import annotations

import pytest

from headrace_testing.conformance.mirror import (
    Mirror,
    leave_out_what_it_lacks,
    mirror,
    mirror_of,
    without_spark,
)
from headrace_testing.conformance.place import SourceUnderTest
from headrace_testing.mirror_process import Program
from tests.conformance.sources import RELEASES, SOURCES
from tests.nursery import Nursery, nursery, program

__all__ = [
    "Mirror",
    "leave_out_what_it_lacks",
    "mirror",
    "mirror_of",
    "nursery",
    "program",
    "without_spark",
]


@pytest.fixture(
    scope="package",
    params=[*SOURCES, *(pytest.param(source, marks=pytest.mark.full) for source in RELEASES)],
    ids=lambda source: source.kind,
)
def source(request: pytest.FixtureRequest) -> SourceUnderTest:
    """Each source in turn."""
    found: SourceUnderTest = request.param
    return found


@pytest.fixture
def program_without_spark(nursery: Nursery) -> Program:
    """The command line, forked from a process that has imported it."""
    return nursery.run
