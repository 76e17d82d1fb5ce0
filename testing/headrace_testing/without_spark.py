"""Mirrors without Spark: their jobs are functions of their own process.

`python -m headrace_testing.without_spark` is the command line `headrace`, but for Spark: jobs take bytes and
give bytes in either (`headrace.spark.jobs`), so what a run decides, keeps and gives up is the same.
"""

from __future__ import annotations

import importlib
import sys

import pytest

from headrace.cli.main import main as command
from headrace.spark.jobs import DriverRunner


def jobs_in_process(patch: pytest.MonkeyPatch) -> None:
    """From here on mirrors of this process start no Spark."""
    place = importlib.import_module("headrace.pipeline.state.owner")
    patch.setattr(place, "_start", lambda *_: (DriverRunner(), lambda: None))


def main() -> int:
    """Run the command line without Spark."""
    with pytest.MonkeyPatch.context() as patch:
        jobs_in_process(patch)
        return command()


if __name__ == "__main__":
    sys.exit(main())
