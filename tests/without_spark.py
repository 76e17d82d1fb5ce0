"""Mirrors whose jobs are functions of their own process.

    a mirror ──► jobs ──► Spark         a JVM and its workers: 10 s of a core before the first task
                      └─► this process  the same functions, which take bytes and give bytes in either

The driver's process decides what a run does, keeps and gives up, and a job's functions are the same in both
(`headrace.spark.jobs`). So tests that start, kill and restart runs do it without a JVM; decision 0029 says
which tests do it on Spark.

`main` is the life of a run that is forked (`tests.nursery`); mirrors within a test's own process have
`jobs_in_process`.
"""

from __future__ import annotations

from contextlib import closing

import pytest

from headrace.cli.main import main as command
from headrace_testing.without_spark import jobs_in_process
from tests.nursery import Nursery, receivers_of

__all__ = ["jobs_in_process", "main"]


def main() -> int:
    """The command line, without Spark; its receivers are forked from this process as it is now."""
    with (
        pytest.MonkeyPatch.context() as patch,
        closing(Nursery.forked()) as nursery,
        receivers_of(nursery),
    ):
        jobs_in_process(patch)
        return command()
