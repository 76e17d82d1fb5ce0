"""Delta's own connector for Spark reads all that runs wrote, and its own commits are noticed.

every   a column of each type
t       altered: its files are made of older files' column chunks, and have deleted rows
anew    truncated, and copied under another type: a second history
idle    left alone, until Delta writes to it
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.cli.main import main
from headrace.core.errors import Definite
from headrace.core.keycode import keycode
from headrace_testing import validators
from headrace_testing.postgres import Database
from tests.integration.pipeline import everytype
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.test_types import COPIED, TYPES
from tests.lakes import has_vectors
from tests.plain_spark import carry_out_by_delta, load

pytestmark = [pytest.mark.server, pytest.mark.full]

_TABLES = """
CREATE TABLE t (id int PRIMARY KEY, n int, long text, gone int);
INSERT INTO t SELECT i, i, repeat('long ', 100), i FROM generate_series(1, 300) i;
CREATE TABLE anew (id int PRIMARY KEY, n int);
INSERT INTO anew SELECT i, i FROM generate_series(1, 20) i;
CREATE TABLE idle (id int PRIMARY KEY, n int);
INSERT INTO idle SELECT i, i FROM generate_series(1, 20) i;
"""
_CHANGES = (
    "UPDATE t SET n = 0 WHERE id = 5; UPDATE anew SET n = 7 WHERE id = 1",
    'ALTER TABLE t RENAME COLUMN n TO "a b"; ALTER TABLE t DROP COLUMN gone;'
    "ALTER TABLE t ADD COLUMN more text;"
    "TRUNCATE anew; INSERT INTO anew VALUES (1, 1), (2, 2)",
    "UPDATE t SET more = 'new' WHERE id % 50 = 0; DELETE FROM t WHERE id % 70 = 0;"
    "ALTER TABLE anew ALTER COLUMN n TYPE text USING n::text || '!'",
    "UPDATE t SET more = 'newer' WHERE id % 50 = 3; UPDATE anew SET n = 'other' WHERE id = 2",
)


def test_it_reads_what_a_run_wrote_and_its_commits_are_noticed(
    mirrors: Mirrors, database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    epochs = _write(mirrors, database)
    wanted = _Wanted(mirrors, tmp_path)
    for epoch in epochs[::2]:
        wanted.tables(epoch, capsys)
    for epoch, number in ((epochs[1], 0), (epochs[-1], -1)):
        for name in ("t", "anew", "every"):
            wanted.history(epoch, name, number)
    place = {name: mirrors.lake.at().url(f"public.{name}") for name in ("t", "anew", "idle")}
    acts = [
        f"OPTIMIZE delta.`{place['t']}`",
        f"VACUUM delta.`{place['idle']}`",  # it fails where vectors stand in the log: Delta's own fault
        f"DELETE FROM delta.`{place['anew']}` WHERE id = 1",
        f"INSERT INTO delta.`{place['idle']}` VALUES (99, 99)",
    ]
    carry_out_by_delta([*wanted.steps, *(("", act) for act in acts)])
    for file, rows in wanted.rows.items():
        found = load(file).rename_columns(rows.column_names).cast(rows.schema)
        assert (file.name, _bits(found)) == (file.name, _bits(rows))
    _are_noticed(mirrors, epochs[-1])


def _write(mirrors: Mirrors, database: Database) -> list[int]:
    """Marks of files of every layout; their epochs."""
    mirrors.options["merge"] = "vectors"
    assert everytype.create_types(database) == TYPES
    everytype.create(database, "every", TYPES, key="id", full=False)
    with database.connect() as connection, connection.transaction():
        everytype.insert(connection, "every", TYPES, COPIED)
    database.execute(_TABLES, user="app")
    epochs = [mirrors.once().at().mark.epoch]
    for number, statements in enumerate(_CHANGES):
        database.execute(statements, user="app")
        with database.connect() as connection, connection.transaction():
            everytype.update(connection, "every", TYPES, {number: number + 1})
        epochs.append(mirrors.once().at().mark.epoch)
        assert validators.exact(mirrors.lake, database.url(), values=True) == []
    assert has_vectors(mirrors.lake)
    return epochs


def _are_noticed(mirrors: Mirrors, epoch: int) -> None:
    """Other files of equal rows are taken up; a table with other rows stops alone, and its marks stay."""
    before = mirrors.lake.at(epoch=epoch)
    changes = "UPDATE t SET more = 'last' WHERE id = 9; UPDATE anew SET n = 'x'; UPDATE idle SET n = 0"
    mirrors.database.execute(changes, user="app")
    with pytest.raises(Definite) as stopped:
        mirrors.once()
    assert stopped.value.code == "LAKE_FOREIGN_COMMIT"
    errors = {name: mirrors.record(f"public.{name}").error for name in ("t", "anew", "idle")}
    assert {name for name, error in errors.items() if error} == {"anew", "idle"}
    cut = mirrors.lake.at()
    assert cut.mark.epoch > epoch
    assert set(cut.mark.versions) == {"public.every", "public.t"}
    assert validators.exact(mirrors.lake, mirrors.database.url(), ["public.t"], values=True) == []
    assert before.arrow("public.idle").num_rows == 20


@dataclass
class _Wanted:
    """Asks Delta's connector, and has the rows that our own reader finds."""

    mirrors: Mirrors
    folder: Path
    steps: list[tuple[str, str]] = field(default_factory=list)
    rows: dict[Path, pa.Table] = field(default_factory=dict)

    def tables(self, epoch: int, capsys: pytest.CaptureFixture[str]) -> None:
        """All tables of a mark, by the views that are printed for Databricks."""
        lake = str(self.mirrors.path)
        assert main(["views", "--lake", lake, "--engine", "databricks", "--epoch", str(epoch)]) == 0
        lines = capsys.readouterr().out.splitlines()
        self.steps += [("", line.rstrip(";")) for line in lines if not line.startswith("--")]
        cut = self.mirrors.lake.at(epoch=epoch)
        for name in cut.tables():
            self._ask(f"{epoch} {name}", name, cut.arrow(name))

    def history(self, epoch: int, name: str, number: int) -> None:
        """The history of a table that a mark's columns have, up to the mark."""
        folder = sorted((self.mirrors.path / "history/main/public" / name).iterdir())[number]
        cut = self.mirrors.lake.at(epoch=epoch)
        source = f"delta.`{folder}` WHERE _time <= {cut.mark.time}"
        self._ask(f"{epoch} history of {name}", source, cut.history(f"public.{name}"))

    def _ask(self, called: str, source: str, rows: pa.Table) -> None:
        file = self.folder / f"{called}.arrow"
        self.steps.append((str(file), f"SELECT * FROM {source}"))
        self.rows[file] = rows


def _bits(rows: pa.Table) -> list[bytes]:
    """The rows, bit for bit, in one order."""
    return sorted(keycode(rows.columns).to_pylist())
