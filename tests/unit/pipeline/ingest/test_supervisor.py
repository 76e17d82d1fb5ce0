"""A receiver's process is started so that it finds the right program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import headrace
from headrace.pipeline.ingest import worker
from headrace.pipeline.ingest.supervisor import _environment


def test_it_finds_the_headrace_that_started_it_before_any_other() -> None:
    first = Path(_environment()["PYTHONPATH"].split(os.pathsep)[0])
    assert first / "headrace" / "__init__.py" == Path(headrace.__file__)


def test_it_is_there_without_arrow() -> None:
    """Which would take it as long again as its own work does."""
    program = (
        f"import sys, {worker.__name__}; from headrace.sources import registry;"
        "registry.stream_source('postgres');"
        "print(sorted({'pyarrow', 'polars', 'psycopg'} & sys.modules.keys()))"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "['psycopg']"
