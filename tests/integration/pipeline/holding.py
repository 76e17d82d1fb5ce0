"""A run whose copy stands while the block runs, and whose stream goes on meanwhile.

    with held_up(mirrors, "copy.range.after", "public.t", monkeypatch):
        ...                     a range of the table is read, and nothing of it is in the lake
    ...                         the run has gone on to its end, as `--once`

If the run fails in between (`HEADRACE_FAILPOINT=...=error`), its next attempt stands at the same place.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import pytest

from headrace.core import failpoint
from headrace.core.errors import HeadraceError
from headrace_testing.postmaster import wait_for


class MirroredOnce(Protocol):
    """A database's mirror into a lake."""

    def once(self, **options: Any) -> object: ...


_LOOK_SECONDS = 0.02
_COPIES = ("snapshot", "by_chunks", "from_lake")


@dataclass
class Held:
    """A place of the copy, and whether somebody stands there."""

    where: str
    table: str
    stands: int = 0  # how often it was come to
    fired: set[tuple[int, str]] = field(default_factory=set)  # fail points
    released: threading.Event = field(default_factory=threading.Event)

    def pass_by(self, name: str, table: str = "") -> None:
        """Replace `core.failpoint`: the copy stands here until it is released, or its attempt has failed."""
        failpoint.failpoint(name, table)
        if (name, table) != (self.where, self.table) or self.released.is_set():
            return
        failed = len(self.fired)
        self.stands += 1
        while not self.released.wait(_LOOK_SECONDS) and len(self.fired) == failed:
            continue


@contextmanager
def held_up(
    mirrors: MirroredOnce,
    where: str,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    *,
    ends_with: object = "",
    **options: Any,
) -> Iterator[Held]:
    """See the module's essay. `ends_with` is the code of the run's error, if it has one."""
    held, ended = Held(where, table), list[HeadraceError | None]()

    def run() -> None:
        try:
            mirrors.once(**options)
            ended.append(None)
        except HeadraceError as error:
            ended.append(error)

    with monkeypatch.context() as patch:
        patch.setattr(failpoint, "_fired", held.fired)
        for module in _COPIES:
            patch.setattr(f"headrace.pipeline.copy.{module}.failpoint", held.pass_by)
        thread = threading.Thread(target=run, name="held-up-mirror")
        thread.start()
        try:
            wait_for(lambda: bool(held.stands or ended), where)
            assert not ended, ended
            yield held
        finally:
            held.released.set()
            thread.join()
    assert [error.code if error else "" for error in ended] == [ends_with], ended
