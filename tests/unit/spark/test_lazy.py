"""A thing that is started beside the work: once, for all who wait, and ended only if it came up."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from headrace.core.errors import Misconfigured, Transient
from headrace.spark.lazy import Lazy, Opened
from headrace_testing.postmaster import wait_for


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


def test_one_that_is_still_starting_is_not_waited_for_and_ends_once_it_is_there() -> None:
    thing, after = Thing(), Thing()
    later, next_one = Lazy(thing.open), Lazy(after.open)
    later.begin()
    wait_for(lambda: thing.opened == 1, "its start")
    later.close()
    assert thing.closed == 0
    # A process has one Spark: the next one begins when the other has ended.
    next_one.begin()
    assert after.opened == 0
    after.may.set()
    thing.may.set()
    assert next_one.get() is after
    assert thing.closed == 1
    next_one.close()


def test_who_waits_for_it_may_be_stopped() -> None:
    thing = Thing()
    later = Lazy(thing.open)
    stopped = Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")

    def check() -> None:
        if thing.opened:
            raise stopped

    with pytest.raises(Transient) as caught:
        later.await_started(check)
    assert caught.value is stopped
    assert later.starting_since is not None
    thing.may.set()
    later.await_started(lambda: None)
    assert later.starting_since is None
    later.close()


def test_what_the_world_kept_from_coming_is_tried_again() -> None:
    thing = Thing(Transient("SPARK_UNREACHABLE", "nobody answers", hint="wait"))
    thing.may.set()
    later = Lazy(thing.open)
    with pytest.raises(Transient):
        later.get()
    thing.error = None
    assert later.get() is thing
    later.close()
    assert (thing.opened, thing.closed) == (2, 1)


def test_what_rests_is_ended_and_comes_again_for_whoever_needs_it() -> None:
    thing = Thing()
    thing.may.set()
    later = Lazy(thing.open)
    later.rest()
    for times in (0, 1, 2):
        _await_rest()
        assert (thing.opened, thing.closed) == (times, times)
        assert not later.is_up
        assert later.starting_since is None
        assert later.get() is thing
        later.rest()
    _await_rest()
    later.close()
    assert (thing.opened, thing.closed) == (3, 3)


def _await_rest() -> None:
    for thread in threading.enumerate():
        if thread.name == "headrace-spark-rest":
            thread.join(30)


def test_what_is_used_does_not_rest() -> None:
    thing = Thing()
    thing.may.set()
    later = Lazy(thing.open)
    with later.using():
        later.rest()
        _await_rest()
        assert later.is_up
    later.close()
    assert (thing.opened, thing.closed) == (1, 1)


def test_a_start_waits_for_the_end_of_what_rests() -> None:
    thing, order, may = Thing(), list[str](), threading.Event()

    def open_thing() -> Opened[Thing]:
        order.append("opened")
        return thing, close

    def close() -> None:
        assert may.wait(30)
        order.append("closed")

    later = Lazy(open_thing)
    later.get()
    later.rest()
    wait_for(lambda: not later.is_up, "its end to begin")
    later.begin()
    assert later.starting_since is not None
    may.set()
    assert later.get() is thing
    assert order == ["opened", "closed", "opened"]
