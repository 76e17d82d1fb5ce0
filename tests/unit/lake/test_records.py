"""Records that a lake keeps beside its tables: format, catalog, requests, status, history and errors."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest

from headrace.core.errors import Definite, Misconfigured
from headrace.core.history import history_schema, own_names
from headrace.core.names import TableName
from headrace.core.schema import Column, TableSchema
from headrace.lake.format import formatfile, layout, requests, statusfile
from headrace.lake.format.plan import Plan
from headrace.lake.format.status import SourceStatus
from headrace.lake.log import catalog
from headrace.lake.store.contract import Store

NOW = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
ORDERS = TableName("public", "orders")


def _plan(epoch: int, **state: object) -> Plan:
    return Plan("main", epoch, f"p{epoch}", "stream", 0, "0/0", -1, state=state)


def _put(store: Store, plan: Plan, attempt: int = 0) -> None:
    store.put(layout.plan_key("main", plan.epoch, attempt), plan.to_json().encode())


def test_a_lake_is_made_once_and_opened_ever_after(any_store: Store) -> None:
    made = formatfile.create_lake(any_store)
    assert formatfile.create_lake(any_store) == made
    assert formatfile.open_lake(any_store) == made
    assert made.number == formatfile.FIRST


def test_a_place_that_is_no_lake_is_refused_and_stays_as_it_is(any_store: Store) -> None:
    with pytest.raises(Misconfigured) as absent:
        formatfile.open_lake(any_store)
    assert absent.value.code == "LAKE_ABSENT"
    assert any_store.empty()
    any_store.put("thesis.txt", b"")
    with pytest.raises(Misconfigured) as occupied:
        formatfile.create_lake(any_store)
    assert occupied.value.code == "LAKE_NOT_EMPTY"
    assert any_store.list("") == ("thesis.txt",)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"format": 3, "lake_id": "x"}', "LAKE_TOO_NEW"),
        ('{"version": 1, "lake_id": "x"}', "LAKE_FORMAT_UNRELEASED"),
        ('{"version": 2, "lake_id": "x"}', "LAKE_FORMAT_UNRELEASED"),
        ("{", "LAKE_FORMAT_DAMAGED"),
        ('{"lake_id": "x"}', "LAKE_FORMAT_DAMAGED"),
    ],
)
def test_a_format_we_cannot_read_is_refused(local_store: Store, text: str, code: str) -> None:
    local_store.put(layout.FORMAT, text.encode())
    with pytest.raises(Misconfigured) as raised:
        formatfile.create_lake(local_store)
    assert raised.value.code == code
    assert local_store.get(layout.FORMAT) == text.encode()


def test_the_catalog_is_the_fold_of_the_plans(any_store: Store) -> None:
    _put(any_store, _plan(1, a=1, b=2))
    _put(any_store, _plan(2, b=None, c={"d": 3}))
    assert catalog.load(any_store, "main", 0).records == {}
    assert catalog.load(any_store, "main", 1).records == {"a": 1, "b": 2}
    assert catalog.load(any_store, "main", 2).records == {"a": 1, "c": {"d": 3}}


def test_a_withdrawn_plan_changes_no_state(local_store: Store) -> None:
    _put(local_store, _plan(1, a=1))
    _put(local_store, _plan(2, a=2))
    _put(local_store, replace(_plan(2), kind="withdraw"), attempt=1)
    assert catalog.load(local_store, "main", 2).records == {"a": 1}


def test_a_checkpoint_stands_for_the_plans_before_it(local_store: Store) -> None:
    state = catalog.Catalog("main")
    for epoch in range(1, 6):
        plan = _plan(epoch, last=epoch)
        _put(local_store, plan)
        state = state.after(plan)
        catalog.save(local_store, state, interval=2)
    catalog.clean(local_store, "main", 5)
    assert [layout.plan_of(key) for key in local_store.list(layout.plans_folder("main"))] == [(5, 0)]
    assert len(local_store.list(layout.checkpoints_folder("main"))) == 1
    assert catalog.load(local_store, "main", 5).records == {"last": 5}
    with pytest.raises(Definite) as raised:
        catalog.load(local_store, "main", 3)
    assert raised.value.code == "LAKE_PLAN_MISSING"


def test_a_catalog_is_read_while_an_owner_cleans_up(local_store: Store) -> None:
    state = catalog.Catalog("main")
    for epoch in range(1, 5):
        plan = _plan(epoch, last=epoch)
        _put(local_store, plan)
        state = state.after(plan)

    class Overtaken:
        """A reader between whose look for checkpoints and first plan an owner cleans up."""

        put_if_absent, delete = local_store.put_if_absent, local_store.delete
        looks = 0

        def get(self, key: str) -> bytes | None:
            if self.looks == 1:
                catalog.save(local_store, state, interval=1)
                catalog.clean(local_store, "main", 4)
            return local_store.get(key)

        def list(self, prefix: str) -> tuple[str, ...]:
            self.looks += 1
            return local_store.list(prefix)

    assert catalog.load(Overtaken(), "main", 4).records == {"last": 4}


def test_requests_are_answered_once_in_the_order_they_were_made(any_store: Store) -> None:
    second = requests.ask(any_store, "main", "resync", {"tables": ["b"]}, now=NOW + timedelta(seconds=1))
    first = requests.ask(any_store, "main", "resync", {"tables": ["a"]}, now=NOW)
    requests.ask(any_store, "other", "stop", {})
    assert requests.pending(any_store, "main") == [first, second]
    requests.answer(any_store, "main", first, {"ok": True})
    requests.answer(any_store, "main", first, {"ok": False})
    assert requests.pending(any_store, "main") == [second]
    assert requests.answer_to(any_store, "main", first) == {"ok": True}
    assert requests.answer_to(any_store, "main", second) is None
    requests.forget(any_store, "main", first)
    assert requests.pending(any_store, "main") == [second]


def test_a_status_tells_its_age_and_is_never_from_the_future(any_store: Store) -> None:
    said = SourceStatus("main", "running")
    assert statusfile.read(any_store, "main") is None
    statusfile.write(any_store, "main", said, now=NOW)
    status = statusfile.read(any_store, "main", now=NOW + timedelta(seconds=2.5))
    assert status == statusfile.Status(said, 2.5)
    early = statusfile.read(any_store, "main", now=NOW - timedelta(hours=1))
    assert early is not None
    assert early.age == 0


def _schema(*names: str) -> TableSchema:
    columns = tuple(Column(name, pa.int64(), "int", "bigint", nullable=False) for name in names)
    return TableSchema(columns, key=names[:1], full=True)


def test_history_has_the_users_columns_and_then_ours() -> None:
    schema = history_schema(_schema("id", "n"))
    assert schema.names == ["id", "n", "_time", "_diff", "_ordinal", "_xid", "_commit_ts"]
    assert not schema.field("id").nullable


def test_our_columns_give_way_to_the_users_in_any_case() -> None:
    assert own_names(["_time", "__time", "_DIFF", "x"]) == {
        "_time": "___time",
        "_diff": "__diff",
        "_ordinal": "_ordinal",
        "_transaction": "_xid",
        "_commit_ts": "_commit_ts",
    }


def test_tables_that_differ_only_in_case_are_refused() -> None:
    twin = TableName("public", "Orders")
    assert {name: error.code for name, error in layout.unfit_tables([ORDERS, twin]).items()} == {
        twin: "LAKE_NAME_CASE"
    }
    assert not layout.unfit_tables([ORDERS, TableName("Public2", "orders")])


def test_a_name_that_no_folder_can_have_is_refused() -> None:
    with pytest.raises(Definite) as raised:
        layout.quote("é" * 60)
    assert raised.value.code == "LAKE_NAME_LONG"


def test_a_files_name_tells_its_epoch() -> None:
    name = layout.file_name(42)
    assert layout.epoch_of(f"any/{name}") == 42
    assert layout.file_name(42) != name
    assert layout.epoch_of("part-00001-6d3a.zstd.parquet") is None


def test_a_place_is_named_as_a_person_would() -> None:
    assert (
        layout.place(layout.table_folder("main", TableName("public", "Sales Data"))) == 'public."Sales Data"'
    )
    assert layout.place("errors/main") == "errors/main"


def test_a_plan_survives_its_json() -> None:
    plan = _plan(3, a=[1, None])
    assert Plan.from_json(plan.to_json()) == plan
    assert json.loads(plan.to_json())["epoch"] == 3
