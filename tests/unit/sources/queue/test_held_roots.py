"""Roots that somebody holds while marks go on: what came beneath them meanwhile is not forgotten."""

from __future__ import annotations

from headrace.core.names import TableName
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.queue import tick
from tests.unit.core.batches import text_table

ROOT = TableDef(TableName("public", "r"), 5, text_table(), {tick.LOOKED: 3})


def _branch(oid: int, attached_by: int) -> Branch:
    return Branch(oid, "public", f"p{oid}", 5, "r", "p", oid, attached_by, False, False, "d", ("k",), ())


def test_a_partition_that_a_look_at_a_held_root_showed_has_to_be_there_at_the_next() -> None:
    """No tick names it any more, where the root waited for its copy for long."""
    before, held = [_branch(7, 100)], [_branch(7, 100), _branch(8, 200)]
    came = tick.places_since(before, held)
    record = tick.owing(ROOT, came)
    assert record is not None
    assert tick.owing(record, came) is None, "it says so already"
    owed = {"r": frozenset((oid, made) for oid, made in record.details[tick.OWED])}
    assert tick.passing(owed, {"r": record}, {5: held}) == frozenset()
    for gone in (before, [_branch(7, 100), _branch(8, 300)]):
        assert tick.passing(owed, {"r": record}, {5: gone}) == {"r"}
    assert tick.places_since(held, before) == frozenset()
