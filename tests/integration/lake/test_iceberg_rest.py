"""Marks in a REST catalog: one transaction where the server has it, else a tag that is there last.

The server is `headrace_testing.iceberg_rest`: HTTP on loopback, written from the specification. At the end it
is Apache Iceberg's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import IcebergTables
from sqlalchemy import delete, insert, select

from headrace.core.errors import HeadraceError
from headrace.iceberg.export import Exporter
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import exportfile
from headrace_testing.iceberg_rest import RestServer, serve, serve_apache
from tests.background import repeat
from tests.iceberg import in_order, tags
from tests.integration.lake.exported import TABLES, Exported, Killed
from tests.integration.lake.household import NAMES, Household


@pytest.fixture(params=[True, False], ids=["transactions", "table by table"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RestServer]:
    with serve(tmp_path, has_transactions=request.param) as rest:
        yield rest


def _config(server: RestServer, **more: str) -> IcebergConfig:
    return IcebergConfig(properties={"type": "rest", "uri": server.uri, **more})


@pytest.fixture
def exported(server: RestServer, tmp_path: Path, seed: int) -> Exported:
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    return Exported(household, tags=3, grace=timedelta(0), config=_config(server))


def _codes(exported: Exported) -> dict[str, str]:
    return {name: error.code for name, error in exported.exporter.left_out.items()}


def test_every_engine_reads_at_each_tag_what_the_source_had(server: RestServer, exported: Exported) -> None:
    """Through maintenance, after which each listed snapshot can be read; and detaching leaves nothing."""
    epochs = []
    for _ in range(4):
        epochs.append(exported.live(2))
        exported.household.maintained(marks="0s", grace="0s")
        assert exported.unreadable() == []
    assert _codes(exported) == {}
    assert exported.wrong() == []
    for name in TABLES:
        assert sorted(tags(exported.engines.table(name))) == epochs[-3:]
    commits = [each for each in server.requests if each == "POST transactions/commit"]
    assert bool(commits) == server.has_transactions
    exported.household.live(3)
    again = Exporter(exported.store, "main", exported.lake_id, exported.grace)
    assert again.export() is not None, "another process goes on"
    assert again.left_out == {}
    assert exported.times
    assert exported.wrong(("pyiceberg",)) == []
    again.detach()
    assert server.catalog.list_namespaces() == []
    assert exported.store.list("iceberg") == ()


POINTS = [
    "iceberg.server.between",
    *(pytest.param(f"iceberg.{name}", marks=pytest.mark.full) for name in ("written", "commit.after")),
    pytest.param("iceberg.server.before", marks=pytest.mark.full),
]


@pytest.mark.parametrize("point", POINTS)
def test_a_tag_that_all_tables_have_is_one_cut_after_a_kill(
    server: RestServer, exported: Exported, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = exported.live()
    exported.household.live(2)

    def kill(name: str, table: str | None = None) -> None:
        if name == point:
            raise Killed

    with monkeypatch.context() as patch:
        for module in ("export", "rest"):
            patch.setattr(f"headrace.iceberg.{module}.failpoint", kill)
        if point == "iceberg.server.between" and server.has_transactions:
            assert exported.exporter.export() is not None, "there is nothing between"
        else:
            with pytest.raises(Killed):
                exported.exporter.export()
    newest = exported.household.ledger.mark.epoch
    found = [sorted(tags(exported.engines.table(name))) for name in TABLES]
    is_whole = point == "iceberg.commit.after" or (server.has_transactions and point.endswith("between"))
    assert found == [[first, newest] if is_whole else [first]] * 2
    assert exported.times
    assert exported.wrong(("pyiceberg",)) == []
    again = Exported(exported.household, tags=3, grace=timedelta(0), config=exported.config)
    assert (again.exporter.export() is None) == is_whole
    assert _codes(again) == {}
    assert again.times
    assert again.wrong(("pyiceberg",)) == []
    assert again.live() == again.household.ledger.mark.epoch
    assert [len(tags(again.engines.table(name))) for name in TABLES] == [3, 3]


def test_who_reads_by_tag_all_the_time_never_sees_half_a_mark(server: RestServer, exported: Exported) -> None:
    """The reader looks between any two tables of an export, and besides them as often as it can."""
    seen: list[tuple[int, int, list[str]]] = []

    def look(*_: object) -> None:
        tables = [server.catalog.load_table(f"main.{name}") for name in TABLES]
        shown = [tags(table) for table in tables]
        for epoch in shown[0].keys() & shown[1].keys():
            for number, table in enumerate(tables):
                rows = table.scan(snapshot_id=shown[number][epoch]).to_arrow()
                seen.append((epoch, number, in_order(rows)))

    exported.exporter.grace = timedelta(hours=1)
    exported.live()
    server.before_commit = look
    with repeat(look, every=0.01):
        for _ in range(5):
            exported.live()
    times = {mark.epoch: mark.time for mark in exported.times}
    for epoch, number, rows in seen:
        state = exported.household.state(times[epoch])[NAMES[number]]
        assert rows == in_order(pa.table({"id": list(state), "v": list(state.values())}))
    assert len(seen) > 20
    assert exported.wrong(("pyiceberg",)) == []


# --- misuse -------------------------------------------------------------------------------------------


def _commit_foreign(server: RestServer, exported: Exported) -> None:
    exported.engines.table(TABLES[0]).append(pa.table({"id": pa.array([0], pa.int64()), "v": ["theirs"]}))


def _drop(server: RestServer, exported: Exported) -> None:
    server.catalog.drop_table(f"main.{TABLES[0]}")


def _set_back(server: RestServer, exported: Exported) -> None:
    """The catalog is as it was a mark before, as after a restore."""
    with server.catalog.engine.connect() as connection:
        rows = connection.execute(select(IcebergTables.__table__)).mappings().all()
    exported.live(6)
    with server.catalog.engine.begin() as connection:
        connection.execute(delete(IcebergTables))
        connection.execute(insert(IcebergTables), [dict(row) for row in rows])


def _untag(server: RestServer, exported: Exported) -> None:
    table = exported.engines.table(TABLES[0])
    table.manage_snapshots().remove_tag(f"mark-{max(tags(table))}").commit()


@pytest.mark.parametrize(
    ("act", "code"),
    [
        (_commit_foreign, "ICEBERG_FOREIGN_COMMIT"),
        pytest.param(_drop, "ICEBERG_SET_BACK", marks=pytest.mark.full),
        pytest.param(_set_back, "ICEBERG_SET_BACK", marks=pytest.mark.full),
        pytest.param(_untag, "ICEBERG_FOREIGN_COMMIT", marks=pytest.mark.full),
    ],
)
def test_a_table_that_others_changed_is_left_alone_until_it_is_rebuilt(
    server: RestServer, exported: Exported, act: Callable[[RestServer, Exported], None], code: str
) -> None:
    exported.live()
    act(server, exported)
    exported.household.live(2)
    exported.exporter.export()
    assert set(_codes(exported).values()) == {code}
    if act is not _set_back:
        assert max(tags(exported.engines.table(TABLES[1]))) == exported.household.ledger.mark.epoch
    exported.household.maintained(marks="0s", grace="0s")
    assert exported.unreadable() == []
    assert exported.exporter.export(rebuild=True) is not None
    assert _codes(exported) == {}
    assert exported.times
    assert exported.wrong(("pyiceberg",)) == []
    assert exported.live() == exported.household.ledger.mark.epoch


def test_a_server_that_is_away_or_refuses_is_told_and_caught_up_with(
    server: RestServer, exported: Exported
) -> None:
    exported.live()
    server.is_away = True
    exported.household.live(5)
    with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_AWAY"):
        exported.exporter.export()
    server.is_away, server.may_write = False, False
    with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_REFUSES"):
        exported.exporter.export()
    server.may_write, server.token = True, "right"
    for more in ({}, {"token": "wrong"}):
        exporter = Exporter(exported.store, "main", exported.lake_id, exported.grace)
        exporter.config = _config(server, **more)
        with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_REFUSES") as caught:
            exporter.export()
        assert "wrong" not in str(caught.value)
    exporter.config = _config(server, token="right")
    assert exporter.export() is not None
    assert b"right" not in (exported.household.path / "_headrace/iceberg/main.json").read_bytes()
    server.token = exporter.config = None
    assert {len(table.metadata.snapshots) for table in exported.engines.tables("main.public")} == {2}
    exporter.detach()
    nowhere = IcebergConfig(properties={"type": "rest", "uri": "http://127.0.0.1:1"})
    with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_AWAY"):
        Exporter(exported.store, "main", exported.lake_id, exported.grace).attach(nowhere)


def test_names_and_tables_of_others_keep_no_other_table_from_the_catalog(
    server: RestServer, exported: Exported, tmp_path: Path
) -> None:
    """A name that the server does not take; a table of theirs; a namespace of another lake."""
    server.longest = 2
    server.catalog.create_namespace("main")
    server.catalog.create_namespace("main.public")
    theirs = pa.table({"x": [1]})
    server.catalog.create_table(f"main.{TABLES[0]}", theirs.schema).append(theirs)
    exported.live()
    assert _codes(exported) == {
        f"main.{TABLES[0]}": "ICEBERG_TABLE_TAKEN",
        "main.public.history.a_1": "ICEBERG_NAME",
        "main.public.history.b_1": "ICEBERG_NAME",
    }
    record = exportfile.read(exported.store, "main")
    assert record is not None
    assert set(record.left_out) == set(_codes(exported))
    assert list(tags(exported.engines.table(TABLES[1]))) == [exported.household.ledger.mark.epoch]
    server.longest = 200
    exported.live()
    assert set(_codes(exported)) == {f"main.{TABLES[0]}"}
    exported.exporter.detach()
    assert server.catalog.load_table(f"main.{TABLES[0]}").scan().to_arrow() == theirs

    server.catalog.create_namespace("other", {"headrace.lake": "another"})
    with pytest.raises(HeadraceError, match="ICEBERG_OTHER_LAKE"):
        Exported(exported.household, config=replace(exported.config, namespace="other"))


@pytest.mark.parametrize("status", [403, pytest.param(404, marks=pytest.mark.full)])
def test_a_table_that_the_server_refuses_holds_up_no_other_and_follows(
    server: RestServer, exported: Exported, status: int
) -> None:
    """Its old tags stay readable for as long as the server lists them; then it is taken up again."""
    refused, other = TABLES
    first = exported.live()
    server.refused = {refused.rpartition(".")[2]: status}
    for _ in range(3):
        newest = exported.live()
    exported.household.maintained(marks="0s", grace="0s")
    assert exported.unreadable() == []
    assert _codes(exported) == {f"main.{refused}": "ICEBERG_TABLE_REFUSED"}
    record = exportfile.read(exported.store, "main")
    assert record is not None
    assert dict(record.left_out) == _codes(exported)
    assert list(tags(exported.engines.table(refused))) == [first]
    assert max(tags(exported.engines.table(other))) == newest
    commits = [each for each in server.requests if each.startswith("POST namespaces/main%1Fpublic/tables")]
    assert bool(commits) != server.has_transactions, "the others are one transaction"
    assert exported.wrong(("pyiceberg",)) == []
    for _ in range(2):
        exported.exporter.export()
        assert exported.times
        assert _codes(exported) == {f"main.{refused}": "ICEBERG_TABLE_REFUSED"}
        exported.household.maintained(marks="0s", grace="0s")
        assert exported.unreadable() == []
    for _ in range(2):
        exported.exporter.export()
    assert exported.times
    assert _codes(exported) == {f"main.{refused}": "ICEBERG_TABLE_REFUSED"}, "no news, and still refused"
    server.refused = {}
    assert exported.exporter.export() is not None, "without a further mark"
    assert _codes(exported) == {}
    assert max(tags(exported.engines.table(refused))) == exported.household.ledger.mark.epoch
    assert exported.exporter.export() is None
    exported.household.maintained(marks="0s", grace="0s")
    assert exported.unreadable() == []
    assert exported.wrong(("pyiceberg",)) == []


def test_a_table_that_the_server_does_not_show_is_left_out_until_it_does(
    server: RestServer, exported: Exported
) -> None:
    first, name = exported.live(), f"main.{TABLES[0]}"
    server.hidden = {"a"}
    for _ in range(3):
        exported.live()
    exported.household.maintained(marks="0s", grace="0s")
    assert _codes(exported) == {name: "ICEBERG_TABLE_REFUSED"}
    server.hidden = set()
    assert list(tags(exported.engines.table(TABLES[0]))) == [first]
    assert exported.unreadable() == []
    assert exported.exporter.export() is not None
    assert _codes(exported) == {}
    assert max(tags(exported.engines.table(TABLES[0]))) == exported.household.ledger.mark.epoch
    assert exported.wrong(("pyiceberg",)) == []


def test_a_new_table_that_may_not_be_made_holds_up_no_other(server: RestServer, exported: Exported) -> None:
    server.refused = {"a_1": 403}
    exported.live()
    assert exported.exporter.export() is None
    assert _codes(exported) == {"main.public.history.a_1": "ICEBERG_TABLE_REFUSED"}
    server.refused = {}
    exported.live()
    assert _codes(exported) == {}


def test_a_table_that_may_not_go_stays_readable_until_it_may(server: RestServer, exported: Exported) -> None:
    epochs = [exported.live() for _ in range(3)]
    exported.household.maintained(marks="0s", grace="0s")
    server.refused = {"b": 403}
    for _ in range(4):
        exported.household.epoch(2, absent=frozenset([NAMES[1]]))
        exported.exporter.export()
        exported.household.maintained(marks="0s", grace="0s")
        assert exported.unreadable() == []
    assert _codes(exported) == {f"main.{TABLES[1]}": "ICEBERG_TABLE_REFUSED"}
    assert sorted(tags(exported.engines.table(TABLES[1]))) == epochs
    with pytest.raises(HeadraceError, match="ICEBERG_TABLE_REFUSED"):
        exported.exporter.detach()
    assert exportfile.read(exported.store, "main") is not None
    server.refused = {}
    exported.exporter.detach()
    assert server.catalog.list_namespaces() == []


# --- the server of Apache Iceberg's own tests -----------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("point", ["iceberg.written", "iceberg.server.before", "iceberg.commit.after"])
def test_a_server_of_apache_iceberg_has_each_mark_once_through_kills_of_both(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    with serve_apache(tmp_path) as server:
        config = IcebergConfig(properties={"type": "rest", "uri": server.uri})
        exported = Exported(household, tags=3, grace=timedelta(0), config=config)
        exported.live()

        def kill(name: str, table: str | None = None) -> None:
            if name == point:
                raise Killed

        for _ in range(3):
            household.live(2)
            with monkeypatch.context() as patch:
                for module in ("export", "rest"):
                    patch.setattr(f"headrace.iceberg.{module}.failpoint", kill)
                with pytest.raises(Killed):
                    exported.exporter.export()
            server.kill()
            with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_AWAY"):
                exported.exporter.export()
            server.restart()
            exported.exporter = Exporter(exported.store, "main", exported.lake_id, exported.grace)
            assert (exported.exporter.export() is None) == (point == "iceberg.commit.after")
            assert exported.times
            assert _codes(exported) == {}
            assert exported.wrong() == []
            household.maintained(marks="0s", grace="0s")
            assert exported.unreadable() == []
        one, two = (tags(exported.engines.table(name)).keys() for name in TABLES)
        assert one == two
        assert len(one) == 3
        exported.engines.table(TABLES[0]).append(pa.table({"id": pa.array([0], pa.int64()), "v": ["theirs"]}))
        exported.live()
        assert _codes(exported) == {f"main.{TABLES[0]}": "ICEBERG_FOREIGN_COMMIT"}
        assert exported.exporter.export(rebuild=True) is not None
        assert _codes(exported) == {}
        exported.exporter.detach()
        assert exported.engines.catalog.list_namespaces() == []
