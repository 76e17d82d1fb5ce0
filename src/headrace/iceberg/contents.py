"""The tables that a mark shows: current states, histories and errors, each with the version of its folder.

    source.schema            table      the current state, at the version that the mark names
    source.schema.history    table_k    history number k, append-only
    source                   errors     the values that the lake's types can't hold

A mark names no version of a history or of errors: theirs is the last one of the mark's epoch or before.
Folders whose logs have no further line are as they were at the last export, and nothing is opened for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.history import OWN, history_ids
from headrace.core.names import TableName
from headrace.core.records import from_record
from headrace.core.schema import TableSchema
from headrace.iceberg.catalog import Identifier, name_error
from headrace.iceberg.shapes import FileFacts, TableShape, describe
from headrace.lake.format import datafile, layout
from headrace.lake.log import histories
from headrace.lake.log.marks import Mark
from headrace.lake.log.table import LakeTable, line_key
from headrace.lake.store.contract import Store

_RECORD = "table/"  # how the keys of tables begin in the catalog
_LONGEST = 255
_LONGEST_PLACE = 1000


@dataclass(frozen=True, slots=True)
class Content:
    """A folder of the lake at a mark, and the Iceberg table that shows it."""

    table: Identifier
    folder: str
    version: int
    home: str  # the folder of the Iceberg table's metadata is below it
    schema: TableSchema | None = None  # of a current state, or of the history that goes on
    is_history: bool = False

    @property
    def name(self) -> str:
        return ".".join(self.table)


class Contents:
    """The tables of a source at a mark; `left_out` has the error of each that Iceberg can't show."""

    def __init__(
        self, store: Store, source: str, namespace: str, mark: Mark, records: Mapping[str, Any]
    ) -> None:
        self._store, self._source, self._namespace = store, source, namespace
        self._mark, self._records = mark, records
        self.left_out: dict[str, HeadraceError] = {}

    def tables(self, last_versions: Mapping[str, int]) -> list[Content]:
        """All of them; `last_versions` are those of the last export, by folder."""
        found: list[Content] = []
        for text, version in sorted(self._mark.versions.items()):
            try:
                found += self._of_table(TableName.parse(text), version, last_versions)
            except HeadraceError as error:
                self.left_out[text] = error
        errors = layout.errors_folder(self._source)
        at = self._version(errors, last_versions.get(errors))
        if at >= 0:
            found.append(self._content((self._namespace, "errors"), errors, at))
        return found

    def _of_table(self, name: TableName, version: int, known: Mapping[str, int]) -> Iterator[Content]:
        told = self._records.get(f"{_RECORD}{name}", {}).get("schema")
        schema = None if told is None else from_record(TableSchema, told)
        space = f"{self._namespace}.{name.schema}"
        _refuse_unfit(name, space)
        folder = layout.table_folder(self._source, name)
        if known.get(folder) != version:
            _refuse_deleted_rows(name, LakeTable(self._store, folder).at(version))
        yield self._content((space, name.name), folder, version, schema)
        above = layout.history_folder(self._source, name, 0).rpartition("/")[0]
        for number in sorted(int(k) for k in self._store.folders(above) if k.isdigit()):
            folder = layout.history_folder(self._source, name, number)
            at = self._version(folder, known.get(folder))
            if at >= 0:
                going_on = schema if schema is not None and number == schema.version else None
                table = (f"{space}.history", f"{name.name}_{number}")
                yield self._content(table, folder, at, going_on, is_history=True)

    def _content(
        self,
        table: Identifier,
        folder: str,
        version: int,
        schema: TableSchema | None = None,
        *,
        is_history: bool = False,
    ) -> Content:
        home = home_of(self._source, folder)
        if len(f"{self._store.url}/{home}") > _LONGEST_PLACE - 100:
            raise name_error(".".join(table), "its place in the lake has too long a path")
        return Content(table, folder, version, home, schema, is_history)

    def _version(self, folder: str, known: int | None) -> int:
        """The last version of a folder at the mark's epoch; -1 where there was none."""
        if known is not None and not self._store.exists(line_key(folder, known + 1)):
            return known
        table = LakeTable(self._store, folder)
        version = table.refresh()
        while version >= 0 and ((entry := table.entry(version)) and (entry.epoch or 0) > self._mark.epoch):
            version -= 1
        return version


def home_of(source: str, folder: str) -> str:
    """The folder of the Iceberg table that shows a folder; its metadata is below it."""
    return f"{layout.iceberg_folder(source)}/{folder.replace(f'/{layout.quote(source)}', '', 1)}"


def _refuse_unfit(name: TableName, space: str) -> None:
    if "." in name.schema or "." in name.name:
        raise name_error(str(name), "a dot is in it")
    if max(len(f"{space}.history"), len(name.name) + 5) > _LONGEST:
        raise name_error(str(name), f"more than {_LONGEST} characters with the namespace")


def _refuse_deleted_rows(name: TableName, table: LakeTable) -> None:
    if any(file.vector for file in table.files().values()):
        raise Misconfigured(
            "ICEBERG_DELETED_ROWS",
            f'files of table "{name}" hold deleted rows, which Iceberg would show',
            hint="headrace maintain --rewrite writes them anew, and while the lake is exported they stay "
            "without; all other tables are exported",
        )


def shape_of(store: Store, content: Content, table: LakeTable) -> TableShape:
    """The columns of a content and their field ids; `table` is its folder at its version."""
    schema, known = table.schema(), content.schema
    if known is not None and not content.is_history:
        return TableShape(known.arrow(), known.ids)
    if known is not None:
        return TableShape(schema, history_ids(known))
    if content.is_history:
        return TableShape(schema, _ids_in_files(store, table))
    return TableShape(schema, tuple(range(1, len(schema) + 1)))


def _ids_in_files(store: Store, table: LakeTable) -> tuple[int, ...]:
    """The field ids of an earlier history, as its files tell; those of older files are their places."""
    names = table.schema().names
    for path in sorted(table.live(), reverse=True):
        ids = datafile.read_ids(store, table.folder, path)
        if ids.keys() >= set(names):
            return tuple(ids[name] for name in names)
    own = histories.own_columns(table.schema()).values()
    places = {name: 900_001 + at for at, name in enumerate(own)}
    assert len(places) == len(OWN)
    return tuple(places.get(name, at) for at, name in enumerate(names, 1))


def files_of(content: Content, shape: TableShape, table: LakeTable) -> dict[str, FileFacts]:
    """The data files of a content."""
    return describe(content.folder, shape, table.describe())


def only_rewritten(store: Store, folder: str, old: int, new: int) -> bool:
    """Tell whether all commits between two versions left the rows as they were."""
    table = LakeTable(store, folder)
    entries = (table.entry(version) for version in range(old + 1, new + 1))
    return new - old <= 100 and all(entry is not None and entry.rewrite for entry in entries)
