"""The bench of the commit machine on real stores and real Delta logs: the twin's twin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from headrace.lake.format import datafile, delta_line, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, Plan
from headrace.lake.format.vector import TableFile
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.log.table import LakeTable, tables_of
from headrace.lake.store.contract import Store, locate
from tests.laws.lake.writers import SOURCE, Writer

_SCHEMA = pa.schema([pa.field("row", pa.int64(), nullable=False)])


class Real:
    """Writers work on a store; rows are rows of Parquet files."""

    def __init__(self, store: Store) -> None:
        self.store = store
        formatfile.create_lake(store)

    def open(self) -> Any:
        return self.store, Marks(self.store, SOURCE), tables_of(self.store)

    def write_file(self, folder: str, epoch: int, rows: set[int]) -> DataFile:
        table = pa.table({"row": sorted(rows)}, schema=_SCHEMA)
        return datafile.write(self.store, folder, layout.file_name(epoch), table)

    def rows_of(self, folder: str, file: TableFile) -> set[int]:
        return set(datafile.read(self.store, folder, file)["row"].to_pylist())

    def schema(self) -> str | None:
        return schemas.encode(_SCHEMA)

    def length(self, folder: str) -> int:
        return LakeTable(self.store, folder).refresh() + 1

    def disturb(self, folder: str, length: int, *, faithful: bool) -> bool:
        live = LakeTable(self.store, folder).at(length - 1).files()
        rows = set().union(*(self.rows_of(folder, file) for file in live.values())) | (
            set() if faithful else {-1}
        )
        file = self.write_file(folder, 0, rows)
        changed = not faithful
        actions: list[Mapping[str, Any]] = [{"commitInfo": {"operation": "OPTIMIZE"}}]
        actions += [
            delta_line.remove(path, changes=changed, vector=each.vector) for path, each in live.items()
        ]
        added = {"path": file.path, "size": file.size, "partitionValues": {}, "modificationTime": 0}
        actions.append({"add": added | {"dataChange": changed, "stats": file.stats}})
        text = "\n".join(json.dumps(action) for action in actions)
        return self.store.put_if_absent(f"{folder}/_delta_log/{length:020d}.json", text.encode())

    def compact_marks(self) -> None:
        marks = Marks(self.store, SOURCE)
        if marks.table.refresh() >= 0:
            url = locate(self.store, marks.table.folder)
            DeltaTable(url, storage_options=self.store.storage_options).optimize.compact()


class RealStage:
    """A lake with writers, seen as the twin's scene is."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.bench = Real(store)
        self.published: list[tuple[Plan, Mark]] = []

    def writer(self, epochs: int = 2, *, tidy: bool = False) -> Writer:
        return Writer(self.bench, epochs, self.published, tidy=tidy)

    def marks(self) -> list[Mark]:
        return Marks(self.store, SOURCE).all()

    def rows(self, folder: str, version: int) -> Counter[int]:
        table = LakeTable(self.store, folder).at(version)
        return Counter(row for file in table.files().values() for row in self.bench.rows_of(folder, file))
