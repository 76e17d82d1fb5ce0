"""The rows on the wire: they survive Arrow, come in batches of bounded size, and carry errors as values."""

from __future__ import annotations

import pytest

from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.core.records import to_record
from headrace.spark import wire
from headrace.spark.wire import BUG, ERROR, RESULT, Row


def result(payload: bytes, item: int = 0, part: int = 0, grp: str = "") -> Row:
    return Row(RESULT, 0, item, grp, 0, part, payload)


def failure(error: Exception) -> Row:
    """The row of an exception that was really raised, so that it has a traceback."""
    value = "row value 4711"
    try:
        assert value
        raise error
    except type(error) as raised:
        return wire.from_error(raised, 0, 3, "g")


def test_rows_survive_the_wire() -> None:
    rows = [Row(0, 1, 2, "group ü", -5, 6, b"\x00\xff"), Row(2, 0, -1, "", 1 << 40, 0, b"")]
    assert list(wire.from_batches(wire.to_batches(rows))) == rows
    assert wire.to_table(rows, 1).schema == wire.SCHEMA


def test_batches_close_by_bytes_and_by_rows() -> None:
    large = [result(bytes(3 << 20)) for _ in range(4)]
    assert [batch.num_rows for batch in wire.to_batches(large)] == [2, 2]
    small = [result(b"") for _ in range(1000)]
    assert [batch.num_rows for batch in wire.to_batches(small)] == [512, 488]


def test_batches_are_made_as_rows_come() -> None:
    seen: list[int] = []

    def rows() -> object:
        for position in range(2000):
            seen.append(position)
            yield result(b"")

    next(wire.to_batches(rows()))  # type: ignore[arg-type]
    assert len(seen) == 512


def test_a_table_has_a_chunk_for_each_partition() -> None:
    table = wire.to_table([result(b"", item) for item in range(7)], 3)
    assert [len(chunk) for chunk in table.column("item").chunks] == [3, 3, 1]


@pytest.mark.parametrize("kind", [Definite, Transient, Misconfigured])
def test_an_error_of_ours_arrives_with_family_code_and_hint(kind: type[Definite]) -> None:
    row = failure(kind("SOME_CODE", "primary", detail="detail", hint="type this"))
    arrived = wire.to_error(row)
    assert (row.kind, row.item, row.grp) == (ERROR, 3, "g")
    assert type(arrived) is kind
    assert to_record(arrived) == to_record(kind("SOME_CODE", "primary", detail="detail", hint="type this"))
    assert "test_wire.py" in arrived.__notes__[0]


def test_a_bug_arrives_with_its_place_and_without_values() -> None:
    row = failure(ValueError("cannot convert 4711"))
    text = str(wire.to_error(row))
    assert row.kind == BUG
    assert "ValueError in a task" in text
    assert "in failure" in text
    assert "4711" not in text.replace('value = "row value 4711"', "")


def test_the_chain_of_a_bug_is_told_and_a_loop_in_it_ends() -> None:
    cause, error = KeyError("secret"), ValueError("secret")
    error.__cause__, cause.__cause__ = cause, error
    text = wire.frames(error)
    assert "builtins.ValueError" in text
    assert "builtins.KeyError" in text
    assert "secret" not in text


def test_want_of_memory_is_the_world_and_not_a_bug() -> None:
    arrived = wire.to_error(failure(MemoryError()))
    assert isinstance(arrived, Transient)
    assert arrived.code == "SPARK_TASK_OUT_OF_MEMORY"


def test_results_are_collected_in_the_order_of_items_and_parts() -> None:
    rows = [result(b"c", 2), result(b"b", 1, 1), result(b"a", 1, 0)]
    assert wire.collect(rows) == [b"a", b"b", b"c"]


def test_the_first_error_wins_and_an_early_stage_before_a_late_one() -> None:
    early = wire.from_error(Definite("EARLY", "x", hint="x"), 0, 9, "")
    earlier = wire.from_error(Definite("EARLIER", "x", hint="x"), 0, 4, "")
    late = wire.from_error(Definite("LATE", "x", hint="x"), 1, -1, "g")
    with pytest.raises(Definite, match="EARLIER"):
        wire.collect([late, result(b""), early, earlier])
