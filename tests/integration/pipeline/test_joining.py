"""A table joins the marks as soon as its copy is in, even if the log stands still."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from headrace.pipeline.stream import cadence
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.holding import held_up

pytestmark = pytest.mark.server


def test_a_table_whose_copy_takes_longest_joins_though_nobody_writes(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server writes nothing either: its background writer, which now and then logs what runs, sleeps."""
    monkeypatch.setattr(cadence, "IDLE_SECONDS", 3600.0)
    database = mirrors.database
    database.execute("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (id int PRIMARY KEY)", user="app")
    with held_up(mirrors, "copy.range.after", "public.b", monkeypatch, handoff="slot") as held:
        wait_for(lambda: _named(mirrors) == {"public.a"}, "the mark of the other table")
        with _asleep(database, "background writer"):
            held.released.set()
            wait_for(lambda: _named(mirrors) == {"public.a", "public.b"}, "the mark of both")


def _named(mirrors: Mirrors) -> set[str]:
    marks = mirrors.lake.marks()
    return set(marks[-1].versions) if marks else set()


@contextmanager
def _asleep(database: Database, kind: str) -> Iterator[None]:
    """A process of the server that is stopped meanwhile."""
    [(pid,)] = database.execute(f"SELECT pid FROM pg_stat_activity WHERE backend_type = '{kind}'")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
