"""History and nets straight from whole old rows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from headrace.core.change_batch import Image
from headrace.core.errors import Definite
from headrace.core.history import history, history_schema
from headrace.core.keycode import keycode
from headrace.core.multiset import fold_multiset, net, net_schema
from headrace.core.schema import Column, TableSchema
from tests.unit.core.batches import Change, batch, delete, insert, rows_of, table_of, text_table, update

FULL = text_table(full=True)
BAG = text_table(key=(), full=True)
HISTORY = ("_time", "_ordinal", "_diff", "id", "small", "big")


def test_an_update_is_two_rows_with_one_ordinal() -> None:
    changes = batch(
        FULL,
        insert(1, ("a", "0", "BIG")),
        update(1, ("b", "1", None), ("a", "0", "BIG"), Image.FULL, holes={2}),
        delete(2, ("b", "1", "BIG"), Image.FULL),
    )
    assert rows_of(history(FULL, changes), *HISTORY) == [
        (1, 0, 1, "a", "0", "BIG"),
        (1, 1, -1, "a", "0", "BIG"),
        (1, 1, 1, "b", "1", "BIG"),
        (2, 0, -1, "b", "1", "BIG"),
    ]


@pytest.mark.parametrize(
    "change",
    [
        update(1, ("a", "1", "")),
        update(1, ("b", "1", ""), ("a", None, None), Image.KEY),
        delete(1, ("a", None, None), Image.KEY),
        insert(1, ("a", "1", None), frozenset({2})),
    ],
)
def test_a_change_without_its_whole_old_row_is_an_error(change: Change) -> None:
    for make in (history, net):
        with pytest.raises(Definite) as caught:
            make(FULL, batch(FULL, change))
        assert caught.value.code == "CHANGE_WITHOUT_OLD_ROW"


def test_our_columns_give_way_to_the_users() -> None:
    columns = tuple(Column(name, pa.string(), "text", "text") for name in ("_time", "__time", "_DIFF"))
    schema = TableSchema(columns, (), full=True)
    ours = ["___time", "__diff", "_ordinal", "_xid", "_commit_ts"]
    assert history_schema(schema).names == ["_time", "__time", "_DIFF", *ours]
    assert history(schema, batch(schema, insert(7, ("x", "y", "z"))))["___time"].to_pylist() == [7]


def test_what_comes_and_goes_again_leaves_no_net() -> None:
    row, other = ("a", "0", None), ("a", "1", None)
    changes = batch(
        BAG,
        insert(1, row),
        update(1, other, row, Image.FULL),
        insert(2, row),
        insert(2, row),
        delete(3, other, Image.FULL),
    )
    found = net(BAG, changes)
    assert rows_of(found, "c0", "c1", "c2", "_net") == [(*row, 2)]
    assert found["_key"].to_pylist() == keycode([pa.array([v], pa.string()) for v in row]).to_pylist()
    assert found.schema == net_schema(BAG)


def test_only_as_many_copies_go_as_were_deleted() -> None:
    row, other = ("a", "0", ""), ("b", "0", "")
    nets = net(BAG, batch(BAG, delete(1, row, Image.FULL), delete(1, row, Image.FULL), insert(1, other)))
    folded = fold_multiset(BAG, table_of(BAG, row, other, row, row), nets)
    assert sorted(rows_of(folded.final)) == [row, other, other]
    assert len(folded.short) == 0


def test_copies_that_are_not_there_are_reported() -> None:
    row, other = ("a", "0", ""), ("b", "0", "")
    nets = net(BAG, batch(BAG, *[delete(1, row, Image.FULL)] * 2, delete(1, other, Image.FULL)))
    folded = fold_multiset(BAG, table_of(BAG, row, other), nets)
    assert folded.short.equals(keycode([pa.array([v]) for v in row]))
    assert folded.final.num_rows == 0


def test_nets_of_several_batches_are_taken_together() -> None:
    row = ("a", "0", "")
    nets = [net(BAG, batch(BAG, change)) for change in (delete(1, row, Image.FULL), insert(2, row))]
    folded = fold_multiset(BAG, table_of(BAG), pa.concat_tables(nets))
    assert folded.final.num_rows == len(folded.short) == 0
