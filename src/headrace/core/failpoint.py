"""Places where a test may stop the program: before and after each step that must survive a crash.

    HEADRACE_FAILPOINT=<name>[@<table>]=<kill|pause|error>

    kill    the process ends at once, as by `kill -9`: nothing is flushed, nothing is told
    pause   this thread waits until the file named by HEADRACE_FAILPOINT_RELEASE exists; where that
            variable is not set the whole process stops as by SIGSTOP, and SIGCONT wakes it
    error   `Transient FAILPOINT` is raised: the world failed here

A fail point fires once in a process, so that what comes after (the retry, the wake-up) can be
watched too. When it fires it says so in one line on standard error, and a test may wait for that line.

Whoever owns a durable step writes `failpoint("lake.plan.put")` on its either side; names are literals,
and `docs/fail-points.md` lists them all. With the variable unset a call costs one look into the
environment. This is the one module of `core` that touches the process: it sits here because every
room above needs it, and nothing in `core` calls it.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from headrace.core.errors import Misconfigured, Transient

VARIABLE = "HEADRACE_FAILPOINT"
RELEASE = "HEADRACE_FAILPOINT_RELEASE"
_ACTIONS = ("kill", "pause", "error")
_POLL_SECONDS = 0.02

_fired: set[tuple[int, str]] = set()


@dataclass(frozen=True, slots=True)
class Setting:
    """An order of the variable: stop at `name` (for `table` only, if given) in the way of `action`."""

    name: str
    table: str | None
    action: str

    def matches(self, name: str, table: str | None) -> bool:
        return self.name == name and self.table in (None, table)

    @classmethod
    def parse(cls, text: str) -> Setting:
        """Read the variable's value; a table's name may itself hold `=` or `@`."""
        place, _, action = text.rpartition("=")
        name, _, table = place.partition("@")
        if not name or action not in _ACTIONS:
            raise Misconfigured(
                "FAILPOINT_MALFORMED",
                f'{VARIABLE} is not of the form "name[@table]=action"',
                hint="write one of kill, pause, error after the last =, or unset the variable",
            )
        return cls(name, table or None, action)


def failpoint(name: str, table: str | None = None) -> None:
    """Stop here if the environment asks for it; `table` is printed as `str(TableName)`."""
    text = os.environ.get(VARIABLE)
    if text is None:
        return
    setting = Setting.parse(text)
    # The process id is part of the key: a forked worker has not fired yet.
    mark = (os.getpid(), text)
    if not setting.matches(name, table) or mark in _fired:
        return
    _fired.add(mark)
    _announce(name, table, setting.action)
    _fire(name, setting.action)


def _announce(name: str, table: str | None, action: str) -> None:
    where = name if table is None else f"{name}@{table}"
    # One system call: the line is whole even if the next instruction kills us.
    os.write(2, f"headrace: fail point {where}: {action}\n".encode())


def _fire(name: str, action: str) -> None:
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif action == "pause":
        _pause()
    else:
        raise Transient(
            "FAILPOINT",
            f'fail point "{name}" was reached',
            hint=f"unset {VARIABLE}",
        )


def _pause() -> None:
    release = os.environ.get(RELEASE)
    if release is None:
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    while not Path(release).exists():
        time.sleep(_POLL_SECONDS)
