"""The driver's runner, and what may be a task. The same on Spark: tests/integration/spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.errors import Definite
from headrace.spark.jobs import Background, DriverRunner, require_reference
from headrace.spark.wire import RESULT, Row
from headrace.spark.worker import unite
from tests.integration.spark import work

JOBS = DriverRunner()


def test_results_come_in_item_order_several_from_one_item() -> None:
    assert JOBS.run(work.several, [b"2", b"0", b"1"]) == [b"2.0", b"2.1", b"1.0"]


def test_a_partial_travels_with_its_arguments() -> None:
    assert JOBS.run(partial(work.shout, b"!"), [b"a", b"b"]) == [b"A!", b"B!"]


def test_nothing_steps_back_in_the_driver() -> None:
    """A thread that holds the interpreter and gets no processor would hold up all others."""
    assert Background(JOBS).run(work.niceness, [b""]) == JOBS.run(work.niceness, [b""])


def test_blobs_of_a_group_come_in_order_whatever_item_they_are_of() -> None:
    merged = JOBS.run_grouped(work.by_letter, work.joined, [b"abcaab", b"abd"])
    assert merged == [b"a:abcaab4,abcaab3,abcaab0,abd0", b"b:abcaab5,abcaab1,abd1", b"c:abcaab2", b"d:abd2"]


def test_a_merge_may_leave_blobs_unread() -> None:
    assert JOBS.run_grouped(work.by_letter, work.first_only, [b"aab"]) == [b"a:aab1", b"b:aab2"]


def test_order_comes_before_the_order_of_items() -> None:
    assert JOBS.run_grouped(work.by_letter, work.joined, [b"ba", b"ab"]) == [b"a:ba1,ab0", b"b:ab1,ba0"]


def test_nothing_is_merged_after_a_failed_split(tmp_path: Path) -> None:
    with pytest.raises(Definite, match="TEST_REFUSED"):
        JOBS.run_grouped(work.refuse_split, partial(work.leave_trace, str(tmp_path)), [b"ab", b"bad"])
    assert list(tmp_path.iterdir()) == []


def test_a_bug_tells_its_place_and_no_value_here_too() -> None:
    with pytest.raises(RuntimeError, match="ValueError in a task") as caught:
        JOBS.run(work.stumble, [b"4711-secret"])
    assert "in stumble" in str(caught.value)
    assert "4711" not in str(caught.value)


def test_an_error_of_a_merge_is_raised() -> None:
    with pytest.raises(Definite, match="TEST_MERGE_REFUSED"):
        JOBS.run_grouped(work.by_letter, work.refuse_merge, [b"ab"])


def test_a_merge_holds_one_blob_at_a_time() -> None:
    alive: list[int] = []

    def rows() -> Iterator[Row]:
        for part in range(100):
            alive.append(part)
            yield Row(RESULT, 0, 0, "g", 0, part, b"")

    def merge(group: str, blobs: Iterator[bytes]) -> Iterator[bytes]:
        for count, _ in enumerate(blobs):
            assert len(alive) <= count + 2
            yield b""

    assert all(row.kind == RESULT for row in unite(merge, rows()))


def inner() -> Callable[[bytes], bytes]:
    def task(item: bytes) -> bytes:
        return item

    return task


@pytest.mark.parametrize(
    "task",
    [lambda item: item, inner(), partial(inner()), partial(work.through, inner()), b"".join, [].append],
    ids=["lambda", "inner", "partial of inner", "partial with inner", "bound to bytes", "bound to list"],
)
def test_what_cannot_be_found_by_name_is_refused(task: Callable[[bytes], bytes]) -> None:
    with pytest.raises(TypeError, match="must be a function of a module"):
        JOBS.run(task, [])


def test_functions_of_modules_and_partials_of_partials_are_taken() -> None:
    require_reference(work.echo)
    require_reference(partial(partial(work.shout), b"!"))
    require_reference(partial(work.through, work.echo))


@settings(max_examples=60)
@given(st.lists(st.text("abc", max_size=5), max_size=6))
def test_grouping_loses_nothing_and_adds_nothing(words: list[str]) -> None:
    merged = JOBS.run_grouped(work.by_letter, work.joined, [word.encode() for word in words])
    assert [part[:1].decode() for part in merged] == sorted({letter for word in words for letter in word})
    assert sum(part.count(b",") + 1 for part in merged) == sum(map(len, words))
