"""The nemesis does what its seed says, heals what it broke, and hides no failure."""

from __future__ import annotations

import threading
from itertools import islice

import pytest

from headrace_testing.nemesis import Fault, Nemesis, schedule
from headrace_testing.postmaster import wait_for

AT_ONCE = (0.0, 0.0)


def test_a_seed_fixes_the_schedule() -> None:
    names = ["cut", "stall", "crash"]
    first = list(islice(schedule(names, 7), 30))
    assert first == list(islice(schedule(list(reversed(names)), 7), 30))
    assert first != list(islice(schedule(names, 8), 30))


def test_every_fault_comes_once_before_any_comes_again() -> None:
    names = ["cut", "stall", "crash", "delay"]
    steps = [step.fault for step in islice(schedule(names, 3), 40)]
    assert all(sorted(steps[at : at + 4]) == sorted(names) for at in range(0, 40, 4))


def test_what_was_done_is_what_the_log_says() -> None:
    done: list[str] = []
    faults = {name: Fault(lambda name=name: done.append(name)) for name in ("a", "b", "c")}  # type: ignore[misc]
    with Nemesis(faults, seed=1, times=7, pause=AT_ONCE) as nemesis:
        nemesis.wait()
    assert [deed.done for deed in nemesis.log] == done
    assert done == [step.fault for step in islice(schedule(list(faults), 1), 7)]
    assert str(nemesis).startswith("nemesis, seed 1:\n")


def test_what_is_broken_when_the_block_ends_is_healed() -> None:
    broken, healed = threading.Event(), threading.Event()
    faults = {"stall": Fault(broken.set, healed.set)}
    with Nemesis(faults, seed=1, pause=AT_ONCE, lasting=(3600, 3600)):
        assert broken.wait(10)
        assert not healed.is_set()
    assert healed.is_set()


def test_a_fault_that_fails_fails_the_test_with_the_log() -> None:
    def fail() -> None:
        raise RuntimeError("no such server")

    nemesis = Nemesis({"crash": Fault(fail)}, seed=5, pause=AT_ONCE)
    with pytest.raises(RuntimeError, match="no such server") as caught, nemesis:
        wait_for(lambda: nemesis.finished, "the fault has failed", deadline=10)
    assert "seed 5" in "\n".join(caught.value.__notes__)
    assert len(nemesis.log) == 1


def test_a_failed_test_gets_the_seed_and_the_deeds_as_a_note() -> None:
    def wrong() -> None:
        with Nemesis({"cut": Fault(lambda: None)}, seed=9, times=1, pause=AT_ONCE) as nemesis:
            nemesis.wait()
            raise AssertionError("the mirror is wrong")

    with pytest.raises(AssertionError) as caught:
        wrong()
    note = "\n".join(caught.value.__notes__)
    assert "seed 9" in note
    assert "cut" in note
