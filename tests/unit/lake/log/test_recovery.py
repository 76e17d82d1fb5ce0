"""A power cut tears a table's log; recovery mends it for whoever reads that log."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.format import datafile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.log import durable, recovery
from headrace.lake.log.commit import open_log
from headrace.lake.log.durable import Durable
from headrace.lake.log.table import LakeTable
from headrace.lake.store.contract import Store, locate

FOLDER = "tables/main/public/t"
OLD = pa.table({"id": [1, 2], "s": ["x", "y"]})
NEW = pa.table({"id": [1, 2], "u": [1.5, 2.5]})


class Mirror:
    """Epochs of one table, by the lake's own log."""

    def __init__(self, store: Store) -> None:
        self.store = store
        durable.write(store, "main", Durable(0))
        self.log = open_log(store, "main")
        self.log.takeover()

    def epoch(self, base: int, rows: pa.Table, remove: tuple[str, ...] = (), *, same: bool = False) -> str:
        """Write rows in place of files, under columns of their own or under the `same`; the file's path."""
        newest = self.log.newest_mark()
        assert newest is not None
        number, time = newest.epoch + 1, 10 * (newest.epoch + 1)
        file = datafile.write(self.store, FOLDER, layout.file_name(number), rows)
        step = TableStep(FOLDER, base, (file,), remove, None if same else schemas.encode(rows.schema))
        self.plan = Plan("main", number, f"p{time}", "stream", 0, f"0/{time + 1:X}", time, steps=(step,))
        self.log.put_plan(self.plan)
        self.log.finish(self.plan)
        return file.path

    def sync(self) -> None:
        self.log.syncing.sync(self.plan)

    def line(self, version: int) -> str:
        return f"{FOLDER}/_delta_log/{version:020d}.json"

    def tear(self, key: str) -> None:
        path = Path(locate(self.store, key))
        path.write_bytes(path.read_bytes()[:40])


@pytest.mark.parametrize("torn", [(1,), (1, 2), ("file",), ("file", 2)])
def test_a_table_whose_columns_changed_in_what_was_torn_has_its_old_ones_again(
    local_store: Store, torn: tuple[int | str, ...]
) -> None:
    """For who opens it, at the newest version and at each; and for who had it open meanwhile."""
    mirror = Mirror(local_store)
    first = mirror.epoch(-1, OLD)
    mirror.sync()
    readers = [LakeTable(local_store, FOLDER) for _ in range(3)]
    second = mirror.epoch(0, NEW, (first,))
    readers[0].refresh()
    mirror.epoch(1, NEW, (second,), same=True)
    readers[1].refresh()
    paths = {1: mirror.line(1), 2: mirror.line(2), "file": f"{FOLDER}/{second}"}
    for each in torn:
        mirror.tear(paths[each])
    recovery.recover(local_store, "main")
    for reader in readers:
        reader.refresh()
        assert reader.schema().names == ["id", "s"]
        assert reader.live() == {first}
    mirror.log = open_log(local_store, "main")
    mirror.log.takeover()
    mirror.epoch(readers[0].version, NEW, (first,))
    readers[0].refresh()
    assert readers[0].schema().names == ["id", "u"]
