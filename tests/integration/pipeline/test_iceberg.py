"""Marks that a run exports while it streams: one cut in every engine, through load, DDL and maintenance.

one, two   money goes from the one to the other and back: the sum of both is the same after every transaction
           columns are renamed, dropped and added again meanwhile, and one table is copied under another type
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import headrace
from headrace.cli import main as cli
from headrace.core.errors import HeadraceError
from headrace.core.failpoint import VARIABLE
from headrace.core.names import TableName
from headrace.core.records import to_record
from headrace.iceberg.settings import IcebergConfig
from headrace.lake.format import exportfile, layout, statusfile
from headrace.lake.read.lake import Lake
from headrace.pipeline.commands import ask
from headrace_testing import validators
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.background import repeat
from tests.iceberg import ENGINES, Engines, in_order, tags
from tests.integration.lake.exported import Exported
from tests.integration.lake.household import Household
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.refused import configuration, upstream
from tests.integration.pipeline.serving import Served, serving
from tests.lakes import has_vectors

pytestmark = pytest.mark.server

TABLES = ("public.one", "public.two")
ROWS, EACH, KILLS = 40, 100, 10
TOTAL = 2 * ROWS * EACH
SETTINGS = {"every": "1s", "tags": 200}
# Each with its table, and what a mark shows once it is followed.
ALTERATIONS: tuple[tuple[str, str, Callable[[pa.Schema], bool]], ...] = (
    ("ALTER TABLE one RENAME COLUMN note TO remark", "one", lambda shown: "remark" in shown.names),
    ("ALTER TABLE two DROP COLUMN kind", "two", lambda shown: "kind" not in shown.names),
    ("ALTER TABLE two ADD COLUMN kind text", "two", lambda shown: "kind" in shown.names),
    (
        "ALTER TABLE one ALTER COLUMN kind TYPE text USING kind::text || '!'",
        "one",
        lambda shown: shown.field("kind").type != pa.int32(),
    ),
)


@dataclass
class Witness:
    """Reads each exported mark as the lake has it, as soon as the catalog has it, and the sums at its tag."""

    mirrors: Mirrors
    own: dict[tuple[int, str], pa.Table] = field(default_factory=dict)
    sums: dict[int, int] = field(default_factory=dict)

    @property
    def engines(self) -> Engines:
        return Engines(self.mirrors.path)

    def look(self) -> None:
        record = exportfile.read(self.mirrors.lake.store, "main")
        if record is None or record.newest is None or record.newest.epoch in self.sums:
            return
        epoch = record.newest.epoch
        try:
            cut = self.mirrors.lake.at(epoch=epoch)
            self.own |= {(epoch, name): cut.arrow(name) for name in cut.tables()}
        except HeadraceError:
            return  # maintenance was quicker: what the engines read is held against each other
        # A mark lacks a table while it is copied anew; the catalog has it only if an earlier mark had it.
        tables = [self.engines.table(name) for name in TABLES if name in set(map(str, cut.tables()))]
        if len(tables) == len(TABLES) and all(epoch in tags(table) for table in tables):
            snapshots = [(table, tags(table)[epoch]) for table in tables]
            self.sums[epoch] = sum(_money(self.engines.read("pyiceberg", *each)) for each in snapshots)


def _money(rows: pa.Table) -> int:
    return int(pc.sum(rows["money"]).as_py())


@contextmanager
def _written(mirrors: Mirrors, seed: int) -> Iterator[None]:
    """Transactions, one after another, each over both tables."""
    dice = random.Random(seed)
    with psycopg.connect(mirrors.database.url(user="app"), autocommit=True) as connection:

        def transfer() -> None:
            amount, row = dice.randint(-9, 9), dice.randint(1, ROWS)
            with connection.transaction():
                connection.execute("UPDATE one SET money = money - %s WHERE id = %s", [amount, row])
                connection.execute("UPDATE two SET money = money + %s WHERE id = %s", [amount, row])

        with repeat(transfer, every=0.02):
            yield


def _exported(mirrors: Mirrors) -> int:
    record = exportfile.read(mirrors.lake.store, "main")
    return 0 if record is None or record.newest is None else record.newest.epoch


def _is_up_to_date(mirrors: Mirrors) -> bool:
    """Tell whether the catalog has all that the newest mark has; marks without changes are not exported."""
    record, mark = exportfile.read(mirrors.lake.store, "main"), mirrors.lake.at().mark
    assert record is not None
    folders = {name: layout.table_folder("main", TableName.parse(name)) for name in mark.versions}
    return all(record.folders[folders[name]][-1].version == at for name, at in mark.versions.items())


def _shows(mirrors: Mirrors, name: str, is_shown: Callable[[pa.Schema], bool]) -> bool:
    """Tell whether the newest mark has the table, with these columns."""
    try:
        return is_shown(mirrors.lake.at().arrow(f"public.{name}").schema)
    except HeadraceError:
        return False  # it is being copied


def _awaits_export(served: Served, mirrors: Mirrors) -> None:
    """Wait until a mark from now on is exported."""
    epoch = mirrors.lake.at().mark.epoch
    served.until(lambda: _exported(mirrors) > epoch, "an export")


def test_every_exported_mark_is_one_cut_in_every_engine(mirrors: Mirrors, seed: int) -> None:
    _create(mirrors)
    mirrors.once()
    witness = Witness(mirrors)
    with (
        serving(mirrors, iceberg=SETTINGS) as served,
        repeat(witness.look, every=0.1),
        _written(mirrors, seed),
    ):
        _awaits_export(served, mirrors)  # with both tables: later marks lack the one that DDL is followed for
        for statement, name, is_shown in ALTERATIONS:
            mirrors.database.execute(statement, user="app")
            served.until(partial(_shows, mirrors, name, is_shown), "a mark with the columns of now")
            _awaits_export(served, mirrors)
        with pytest.raises(HeadraceError, match="ICEBERG_CONFIGURED"):
            ask.ask(str(mirrors.path), "iceberg.detach", {})
        ask.ask(str(mirrors.path), "maintain", {"marks": "0s", "grace": "0s"})
        _awaits_export(served, mirrors)
    assert served.codes == []
    mirrors.once()
    assert _is_up_to_date(mirrors), "by a run without settings, too"
    assert validators.exact(mirrors.lake, mirrors.database.url(), values=True) == []
    assert set(witness.sums.values()) == {TOTAL}
    _is_read_alike(witness)
    status = statusfile.read(mirrors.lake.store, "main")
    assert status is not None
    assert status.record.iceberg is not None
    assert (status.record.iceberg.epoch, status.record.iceberg.behind_since) == (_exported(mirrors), None)


@pytest.mark.full
@pytest.mark.timeout(0)
def test_a_long_day_of_kills_ddl_and_maintenance_is_one_cut_at_every_tag(
    mirrors: Mirrors, program: Program, seed: int, pytestconfig: pytest.Config
) -> None:
    """10 kills and 5 alterations in so many minutes (`--minutes`), maintenance after each; all engines."""
    _create(mirrors)
    mirrors.once()
    settings = to_record(IcebergConfig(every="5s", tags=1000))
    url = mirrors.database.url(user="app")
    ask.ask(str(mirrors.path), "iceberg.attach", settings, url=url)
    witness, points = Witness(mirrors), ["iceberg.commit.after", None, "iceberg.commit.before"]
    alterations = [*ALTERATIONS, ("ALTER TABLE two ADD COLUMN more int", "two", lambda s: "more" in s.names)]
    run = Mirrored(mirrors.path, url, "public.*", program=program)
    begun, seconds = time.monotonic(), pytestconfig.getoption("--minutes") * 60
    with run as mirror, repeat(witness.look, every=0.3), _written(mirrors, seed):
        for number in range(KILLS):
            due = begun + number * seconds / KILLS
            wait_for(lambda: time.monotonic() > due, "the next kill", deadline=seconds + 60)  # noqa: B023
            mirror.kill()
            point = points[number % len(points)]
            mirror.start(environment={} if point is None else {VARIABLE: f"{point}=kill"})
            if point is not None:
                mirror.wait()
                mirror.start()
            if number % 2:
                statement, name, is_shown = alterations[number // 2]
                mirrors.database.execute(statement, user="app")
                mirror.until(partial(_shows, mirrors, name, is_shown), "a mark with the columns of now")
            mirror.until(partial(_exported_since, mirrors, mirrors.lake.at().mark.epoch), "an export")
            ask.ask(str(mirrors.path), "maintain", {"marks": "0s", "grace": "0s"})
        assert mirror.stop() == 0
    mirrors.once()  # what was written since
    assert _is_up_to_date(mirrors)
    assert validators.exact(mirrors.lake, url, values=True) == []
    assert len(witness.sums) > KILLS
    assert set(witness.sums.values()) == {TOTAL}
    _is_read_alike(witness, all_engines=True)


def _exported_since(mirrors: Mirrors, epoch: int) -> bool:
    return _exported(mirrors) > epoch


def _create(mirrors: Mirrors) -> None:
    for name in ("one", "two"):
        mirrors.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, money bigint, note text, kind int);"
            f"INSERT INTO {name} SELECT i, {EACH}, 'n', i FROM generate_series(1, {ROWS}) i",
            user="app",
        )


def _is_read_alike(witness: Witness, *, all_engines: bool = False) -> None:
    """Engines read at every tag what the lake held, under the columns of then: all, or one in turn."""
    engines = witness.engines
    columns: dict[str, set[tuple[str, ...]]] = {}
    for name in TABLES:
        table = engines.table(name)
        compared = 0
        for number, (epoch, snapshot) in enumerate(tags(table).items()):
            chosen = set(ENGINES) if all_engines else {"pyiceberg", ENGINES[number % len(ENGINES)]}
            read = {engine: engines.read(engine, table, snapshot) for engine in chosen}
            own = witness.own.get((epoch, name), read["pyiceberg"])
            compared += (epoch, name) in witness.own
            columns.setdefault(name, set()).add(tuple(own.column_names))
            assert {tuple(each.column_names) for each in read.values()} == {tuple(own.column_names)}
            assert [e for e, rows in read.items() if in_order(rows) != in_order(own)] == [], (name, epoch)
        assert compared >= 3
        for listed in table.metadata.snapshots:
            assert table.scan(snapshot_id=listed.snapshot_id).to_arrow().num_rows == ROWS
    assert columns["public.one"] >= {("id", "money", "note", "kind"), ("id", "money", "remark", "kind")}
    assert columns["public.two"] >= {("id", "money", "note"), ("id", "money", "note", "kind")}


def test_a_catalog_in_postgresql_has_all_tables_of_a_mark_and_may_refuse_us(
    database: Database, tmp_path: Path, seed: int
) -> None:
    """A catalog of its own kind: text in another program's hands, and a password that the lake never has."""
    household = Household(tmp_path / "lake", seed)
    household.live(2)
    url = database.url(user="app").replace("postgresql:", "postgresql+psycopg:", 1)
    config = IcebergConfig(properties={"type": "sql", "uri": url})
    exported = Exported(household, config=config)
    exported.exporter.config = config
    for _ in range(3):
        exported.live()
    assert exported.wrong(("pyiceberg",)) == []
    exported.engines.table("public.a").append(pa.table({"id": pa.array([0], pa.int64()), "v": ["theirs"]}))
    exported.live()
    assert {error.code for error in exported.exporter.left_out.values()} == {"ICEBERG_FOREIGN_COMMIT"}
    secret = str(urlsplit(url).password)
    wrong = {"type": "sql", "uri": url.replace(secret, "wrong", 1)}
    exported.exporter.config = IcebergConfig(properties=wrong)
    with pytest.raises(HeadraceError, match="ICEBERG_CATALOG_AWAY") as caught:
        exported.exporter.export()
    assert "wrong" not in str(caught.value)
    assert secret.encode() not in (tmp_path / "lake" / layout.export_key("main")).read_bytes()
    exported.exporter.config = config
    exported.exporter.detach()
    assert exported.engines.catalog.list_namespaces() == []


def test_a_drop_takes_the_tables_out_of_the_catalog_and_a_copy_leaves_them(
    mirrors: Mirrors, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a catalog of several lakes; after the reconciliation the tables are made anew."""
    mirrors.database.execute("CREATE TABLE one (id int PRIMARY KEY); INSERT INTO one VALUES (1)", user="app")
    mirrors.once()
    url, catalog = mirrors.database.url(user="app"), f"sqlite:///{tmp_path}/catalog.db"
    attach = ["iceberg", "attach", "--lake", str(mirrors.path), "--uri", catalog]
    assert cli.main(attach) == 0
    copy = tmp_path / "copy"
    shutil.copytree(mirrors.path, copy)
    config = configuration(copy, url=url)
    with pytest.raises(HeadraceError):
        headrace.mirror(config, once=True, elsewhere="copy")  # what it lacks upstream takes a reconciliation
    assert exportfile.read(Lake(copy).store, "main") is None, "the original exports on"
    assert cli.main(["iceberg", "detach", "--lake", str(copy)]) == 2
    theirs = SqlCatalog("headrace", uri=catalog)
    assert theirs.load_table("main.public.one").scan().to_arrow()["id"].to_pylist() == [1]

    capsys.readouterr()
    drop = ["drop", url, "--lake", str(mirrors.path)]
    said = 'main: the lake\'s tables in the Iceberg namespace "main": would be dropped'
    assert cli.main([*drop, "--dry-run"]) == 0
    assert said in capsys.readouterr().out
    assert theirs.list_tables("main.public") == [("main", "public", "one")]
    away = (tmp_path / "catalog.db").rename(tmp_path / "away")
    (tmp_path / "catalog.db").mkdir()
    assert cli.main([*drop, "--yes"]) == 4
    assert upstream(mirrors.database) == (set(), set()), "a catalog that is away keeps nothing at the source"
    (tmp_path / "catalog.db").rmdir()
    away.rename(tmp_path / "catalog.db")
    capsys.readouterr()
    assert cli.main([*drop, "--yes"]) == 0
    assert 'main: dropped the lake\'s tables in the Iceberg namespace "main"' in capsys.readouterr().out
    assert theirs.list_namespaces() == []

    mirrors.database.execute("INSERT INTO one VALUES (2)", user="app")
    headrace.mirror(configuration(mirrors.path, url=url), once=True, reconcile=True)
    assert cli.main(attach) == 0
    assert sorted(theirs.load_table("main.public.one").scan().to_arrow()["id"].to_pylist()) == [1, 2]


def test_maintenance_of_an_exported_lake_leaves_no_deleted_rows(mirrors: Mirrors) -> None:
    """And no epoch brings new ones, whatever `merge` says."""
    mirrors.options["merge"] = "vectors"
    database, path, url = mirrors.database, str(mirrors.path), mirrors.database.url(user="app")
    database.execute("CREATE TABLE one (id int PRIMARY KEY, n int)", user="app")
    database.execute("INSERT INTO one SELECT i, 0 FROM generate_series(1, 99) i", user="app")
    mirrors.once()
    database.execute("UPDATE one SET n = 1 WHERE id = 7", user="app")
    assert has_vectors(mirrors.once())
    attached = ask.ask(path, "iceberg.attach", to_record(IcebergConfig()), url=url)
    assert [error["code"] for error in attached["left_out"].values()] == ["ICEBERG_DELETED_ROWS"]
    ask.ask(path, "maintain", {"auto": True}, url=url)
    assert not has_vectors(mirrors.lake)
    database.execute("UPDATE one SET n = 2 WHERE id = 8", user="app")
    assert not has_vectors(mirrors.once())
    assert ask.ask(path, "iceberg.rebuild", {}, url=url)["left_out"] == {}
    rows = Engines(mirrors.path).table("public.one").scan().to_arrow()
    assert sum(rows["n"].to_pylist()) == 3
    assert rows.num_rows == 99


@pytest.mark.parametrize("kills", [1, pytest.param(10, marks=pytest.mark.full)])
def test_a_run_that_is_killed_exports_on(mirrors: Mirrors, program: Program, seed: int, kills: int) -> None:
    """In the transaction, behind it, and at any moment; each tag that there is shows one cut."""
    for name in ("one", "two"):
        mirrors.database.execute(
            f"CREATE TABLE {name} (id int PRIMARY KEY, money bigint);"
            f"INSERT INTO {name} SELECT i, {EACH} FROM generate_series(1, {ROWS}) i",
            user="app",
        )
    mirrors.once()
    settings = to_record(IcebergConfig(every="1s", tags=200))
    url = mirrors.database.url(user="app")
    ask.ask(str(mirrors.path), "iceberg.attach", settings, url=url)
    points = ["iceberg.commit.after", "iceberg.commit.before", None, "iceberg.written"]
    run = Mirrored(mirrors.path, url, "public.*", program=program)
    with _written(mirrors, seed), run as mirror:
        for number in range(kills):
            epoch, point = _exported(mirrors), points[number % len(points)]
            mirror.kill()
            mirror.start(environment={} if point is None else {VARIABLE: f"{point}=kill"})
            if point is not None:
                mirror.wait()
                mirror.start()
            mirror.until(lambda epoch=epoch: _exported(mirrors) > epoch, "an export")  # type: ignore[misc]
        assert mirror.stop() == 0
    assert _is_up_to_date(mirrors)
    one, two = (Engines(mirrors.path).table(name) for name in TABLES)
    assert tags(one).keys() == tags(two).keys()
    assert len(tags(one)) > kills
    for epoch in tags(one):
        both = [(one, tags(one)[epoch]), (two, tags(two)[epoch])]
        assert sum(_money(Engines(mirrors.path).read("pyiceberg", *each)) for each in both) == TOTAL
