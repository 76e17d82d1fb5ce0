"""A receiver's process is started so that it finds the right program."""

from __future__ import annotations

import os
from pathlib import Path

import headrace
from headrace.pipeline.ingest.supervisor import _environment


def test_it_finds_the_headrace_that_started_it_before_any_other() -> None:
    first = Path(_environment()["PYTHONPATH"].split(os.pathsep)[0])
    assert first / "headrace" / "__init__.py" == Path(headrace.__file__)
