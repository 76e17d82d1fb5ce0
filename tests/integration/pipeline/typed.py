"""A command as a user types it: what it says, and how it ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from tempfile import TemporaryFile

from headrace_testing.mirror_process import COMMAND, Program
from tests.nursery import Nursery


@dataclass(frozen=True)
class Typed:
    """A command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def typed(
    program: Program, nursery: Nursery, *arguments: str, environment: Mapping[str, str] | None = None
) -> Typed:
    """`headrace` with these arguments, in a process of its own; on Spark where `program` is."""
    variables = {**os.environ, **(environment or {})}
    with TemporaryFile() as said, TemporaryFile() as errors:
        if program is COMMAND:
            command = [sys.executable, "-m", "headrace.cli.main", *arguments]
            code = subprocess.run(
                command, env=variables, stdout=said, stderr=errors, timeout=300, check=False
            ).returncode
        else:
            code = nursery.run(arguments, variables, said, errors).wait(300)
        out, wrong = (_written(each.fileno()) for each in (said, errors))
    return Typed(code, out, wrong)


def _written(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    return os.pread(descriptor, size, 0).decode()
