"""Partitioned tables through the queue: the lake holds what a SELECT from the root shows, at every mark.

A table for each case of the pipeline's own list, and for what triggers alone can tell, all in one database and
one run. What brings no row that was not written down leaves a root in its marks.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import psycopg
import pytest

import headrace
from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.decode.queue import framing
from headrace.lake.read.lake import Lake
from headrace.pipeline.state.table_state import State
from headrace.sources.contract.decoder import TableChanges, Wanted
from headrace.sources.contract.tables import TableDef
from headrace.sources.queue import capture, tick
from headrace.sources.queue.decoder import QueueDecoder
from headrace.sources.queue.schema_check import check
from headrace.testing import validators
from headrace.testing.postgres import Database, Server
from tests import without_spark
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.parts import test_roots as roots
from tests.integration.pipeline.parts.comparing import differing
from tests.integration.pipeline.parts.test_roots import ATTACH, INTO, LIKE, MADE, ROWS, do, make, show
from tests.integration.pipeline.verifying import outcomes
from tests.integration.queue.capturing import LAKE, Capturing, capturing, executed

pytestmark = pytest.mark.server

# Where triggers tell, or hide, what a log does not.
SAME: Mapping[str, str] = {
    **{name: statements for name, statements in roots.SAME.items() if name != "added"},
    "identity_for_a_while": roots.COPIED["identity_for_a_while"],
    # Rows that a MERGE moves are shown to no trigger on statements, unless it inserts and deletes, too.
    "merged": "MERGE INTO {t} t USING (SELECT * FROM {t} WHERE id % 2 = 0) s ON t.id = s.id"
    " WHEN MATCHED THEN UPDATE SET k = (s.k + 17) % 40; MERGE INTO {t}_deep t USING (VALUES (20), (21)) s(k)"
    " ON t.k = s.k WHEN MATCHED AND t.k = 20 THEN UPDATE SET k = 33 WHEN MATCHED THEN DELETE",
    "together": "WITH a AS (INSERT INTO {t}_mid (id, k, v) VALUES (700, 15, 'w') RETURNING id), b AS"
    " (UPDATE {t} SET k = k + 10 WHERE k BETWEEN 3 AND 14) DELETE FROM {t}_deep WHERE k > 30",
    "upserted": "INSERT INTO {t} VALUES (1, 1, 'c'), (800, 5, 'd') ON CONFLICT (id, k) DO UPDATE SET v = 'u'",
    "written_by_triggers": "CREATE TRIGGER again AFTER UPDATE ON {t} FOR EACH STATEMENT"
    " EXECUTE FUNCTION again(); UPDATE {t} SET k = (k + 3) % 40 WHERE id % 5 = 1; DROP TRIGGER again ON {t}",
    "under_hostile_settings": "BEGIN; SET LOCAL search_path = pg_temp; CREATE DOMAIN pg_temp.oid AS text"
    " CHECK (false); CREATE TEMP TABLE queue (name text, current int); UPDATE public.{t} SET k = 15; COMMIT",
}
COPIED: Mapping[str, str] = {
    **{name: statements for name, statements in roots.COPIED.items() if name != "identity_for_a_while"},
    "added": roots.SAME["added"],
    "silenced": "ALTER TABLE {t}_mid DISABLE TRIGGER ALL; UPDATE {t} SET v = 'silent';"
    " ALTER TABLE {t}_mid ENABLE TRIGGER ALL",
    "new_and_silenced": f"{MADE}; ALTER TABLE {{t}}_new DISABLE TRIGGER ALL; {INTO};"
    " ALTER TABLE {t}_new ENABLE TRIGGER ALL",
    # Its rows are gone again, and were there in between.
    "attached_and_emptied": f"{LIKE}; {ROWS}; {ATTACH}; DELETE FROM {{t}} WHERE k = 41; VACUUM {{t}}_new",
}
CASES = {**SAME, **COPIED}
FUZZED = "fuzzed"
AGAIN = """
CREATE FUNCTION again() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF pg_trigger_depth() < 4 THEN
        EXECUTE format('UPDATE %s SET k = (k + 9) %% 40, v = v || ''!'' WHERE id %% 5 < 2', TG_RELID::regclass);
    END IF;
    RETURN NULL;
END $$
"""


class QueueMirrors(Mirrors):
    """The same, through a queue."""

    def config(self, *tables: str) -> dict[str, Any]:
        url = f"queue+{self.database.url(user='app')}"
        source = {"url": url, "tables": list(tables or ("public.*",)), "every": "0s", **self.options}
        return {"lake": {"path": str(self.path)}, "source": {"main": source}}

    def once(self, *tables: str, **options: Any) -> Lake:
        headrace.mirror(self.config(*tables), once=True)
        return self.lake


@dataclass
class Scene:
    """The mirror when all is done, and the intervals from before."""

    mirrors: QueueMirrors
    epoch: int
    since: Mapping[str, int | None]

    @property
    def lake(self) -> Lake:
        return self.mirrors.lake


@pytest.fixture(scope="module")
def scene(queue_server: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with pytest.MonkeyPatch.context() as patch, queue_server.database() as database:
        without_spark.jobs_in_process(patch)
        mirrors = QueueMirrors(database, tmp_path_factory.mktemp("partitions") / "lake", None)
        make(database, CASES)
        database.execute(AGAIN)
        mirrors.once()
        epoch = mirrors.lake.marks()[-1].epoch
        since = {name: mirrors.record(f"public.{name}").since for name in CASES}
        for name, statements in CASES.items():
            database.execute(f"UPDATE {name} SET v = 'before' WHERE id % 3 = 0", user="app")
            do(database, statements, name)
            database.execute(f"UPDATE {name} SET v = 'after' WHERE id % 4 = 0", user="app")
        mirrors.once()
        for name in CASES:
            database.execute(
                f"DELETE FROM {name} WHERE id % 11 = 2; UPDATE {name} SET k = k WHERE id = 8", user="app"
            )
        mirrors.once()
        show(database, CASES)
        yield Scene(mirrors, epoch, since)


def test_each_table_is_what_its_root_shows(scene: Scene) -> None:
    assert differing(scene.mirrors, CASES) == {}
    [verdict] = headrace.verify(scene.mirrors.config())
    assert outcomes(verdict) == {f"public.{case}": "equal" for case in CASES}
    same = [f"public.{name}" for name in SAME]
    assert validators.definite(scene.lake, every=True, tables=same, of_many=True) == []
    assert validators.travelled(scene.lake, tables=same) == []


@pytest.mark.parametrize("case", COPIED)
def test_rows_that_nobody_wrote_down_are_copied_anew(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error) == (State.LIVE, None)
    assert record.since is not None
    assert record.since > (scene.since[case] or 0)


@pytest.mark.parametrize("case", SAME)
def test_what_brings_no_row_leaves_a_root_in_its_marks(scene: Scene, case: str) -> None:
    record = scene.mirrors.record(f"public.{case}")
    assert (record.state, record.error, record.since) == (State.LIVE, None, scene.since[case])
    marks = [mark for mark in scene.lake.marks() if mark.epoch >= scene.epoch]
    assert all(f"public.{case}" in mark.versions for mark in marks)
