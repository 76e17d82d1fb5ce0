"""A power cut tears a table's log; recovery mends it for whoever reads that log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from headrace.lake.format import datafile, formatfile, layout, schemas
from headrace.lake.format.plan import Plan, TableStep
from headrace.lake.format.vector import Vector
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
        formatfile.create_lake(store)
        durable.write(store, "main", Durable(0))
        self.log = open_log(store, "main")
        self.log.takeover()

    def epoch(self, base: int, rows: pa.Table, remove: tuple[str, ...] = (), *, same: bool = False) -> str:
        """Write rows in place of files, under columns of their own or under the `same`; the file's path."""
        file = datafile.write(self.store, FOLDER, layout.file_name(self._number), rows)
        self._publish(TableStep(FOLDER, base, (file,), remove, None if same else schemas.encode(rows.schema)))
        return file.path

    def delete(self, base: int, path: str, *positions: int) -> None:
        """Delete rows of a file, by a vector in place of the one that it has."""
        table = LakeTable(self.store, FOLDER)
        table.refresh()
        file = table.with_vector(path, Vector.of(np.array(positions)))
        self._publish(TableStep(FOLDER, base, (file,), (path,)))

    @property
    def _number(self) -> int:
        newest = self.log.newest_mark()
        assert newest is not None
        return newest.epoch + 1

    def _publish(self, step: TableStep) -> None:
        number, time = self._number, 10 * self._number
        self.plan = Plan("main", number, f"p{time}", "stream", 0, f"0/{time + 1:X}", time, steps=(step,))
        self.log.put_plan(self.plan)
        self.log.finish(self.plan)

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


@pytest.mark.parametrize("torn", [(2,), (3,), (2, 3), (4,), (2, 4), (2, 3, 4), ("file",), (3, "file")])
@pytest.mark.parametrize("had_vector", [False, True])
def test_a_file_has_its_former_vector_again_where_later_ones_were_torn(
    local_store: Store, torn: tuple[int | str, ...], had_vector: bool
) -> None:
    """For delta-rs, which goes on from the lines that it read before some of them were torn, too."""
    mirror = Mirror(local_store)
    rows = pa.table({"id": list(range(6))})
    path = mirror.epoch(-1, rows)
    mirror.delete(0, path, 0) if had_vector else mirror.epoch(0, rows.slice(6), same=True)
    mirror.sync()
    first = 4 if torn == ("file",) else torn[0]
    expected = {2: list(range(had_vector, 6)), 3: [2, 3, 4, 5], 4: [3, 4, 5]}[int(first)]
    others = [DeltaTable(locate(local_store, FOLDER))]
    mirror.delete(1, path, 0, 1)
    others.append(DeltaTable(locate(local_store, FOLDER)))
    mirror.delete(2, path, 0, 1, 2)
    others.append(DeltaTable(locate(local_store, FOLDER)))
    file = mirror.epoch(3, pa.table({"id": [9]}), (path,), same=True)
    others.append(DeltaTable(locate(local_store, FOLDER)))
    for each in torn:
        mirror.tear(f"{FOLDER}/{file}" if each == "file" else mirror.line(int(each)))
    recovery.recover(local_store, "main")
    table = LakeTable(local_store, FOLDER)
    table.refresh()
    parts = [datafile.read(local_store, FOLDER, each) for each in table.files().values()]
    assert sorted(pa.concat_tables(parts)["id"].to_pylist()) == expected
    for other in [*others, DeltaTable(locate(local_store, FOLDER))]:
        other.update_incremental()
        found: Any = pa.table(other.scan())
        assert sorted(found["id"].to_pylist()) == expected
    mirror.log = open_log(local_store, "main")
    mirror.log.takeover()
    mirror.delete(table.version, path, 0, 1, 2, 3)
    assert table.refresh() == mirror.plan.steps[0].base + 1
    assert table.files()[path].alive == 2
