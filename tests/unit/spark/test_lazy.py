"""A thing that is started beside the work: once, for all who wait, and ended only if it came up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.core.errors import Misconfigured
from headrace.spark.lazy import Lazy, Opened


class Thing:
    """Counts how often it is opened and closed, and opens when it may."""

    def __init__(self, error: Exception | None = None) -> None:
        self.opened = self.closed = 0
        self.may = threading.Event()
        self.error = error

    def open(self) -> Opened[Thing]:
        self.opened += 1
        assert self.may.wait(30)
        if self.error is not None:
            raise self.error
        return self, self.close

    def close(self) -> None:
        self.closed += 1


def test_it_is_opened_once_for_all_who_wait_and_closed_once() -> None:
    thing = Thing()
    later = Lazy(thing.open)
    later.begin()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(later.get) for _ in range(3)]
        thing.may.set()
        assert [each.result(30) for each in waiting] == [thing] * 3
    later.close()
    assert (thing.opened, thing.closed) == (1, 1)


def test_what_nobody_needed_is_neither_opened_nor_closed() -> None:
    thing = Thing()
    Lazy(thing.open).close()
    assert (thing.opened, thing.closed) == (0, 0)


def test_what_kept_it_from_coming_up_is_told_to_everybody_and_nothing_is_closed() -> None:
    thing = Thing(Misconfigured("SPARK_MISSING", "there is none", hint="install one"))
    thing.may.set()
    later = Lazy(thing.open)
    for _ in range(2):
        with pytest.raises(Misconfigured) as caught:
            later.get()
        assert caught.value.code == "SPARK_MISSING"
    later.close()
    assert (thing.opened, thing.closed) == (1, 0)
