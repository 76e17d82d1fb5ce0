"""One Delta table of the lake, by delta-rs: what its log says, and one commit at exactly one version.

`headrace.lake.log.commit` decides; this module carries out. It does single looks and single attempts, each of
them atomic; the commit protocol takes care of everything that must hold *between* them.

    refresh()            read the log's end
    files()              the live files as of the last refresh
    entry(v)             who made version v, and whether it only rewrote files
    write(step, stamp)   True: version base+1 is ours. False: base+1 was taken before us (maybe by us:
                         a store that repeats a request whose answer was lost refuses its own twin)

The behaviour of delta-rs 1.6.6 shapes `write` (measured, see the decision record):

* `mode="append"` ignores a schema that differs from the table's. So a changed schema is either added
  nullable columns alone (`alter.add_columns`, a commit without files) or a replacement of everything
  (`mode="overwrite"`, whose removals delta-rs derives itself, so the step must remove all live files).
* A replacement does not raise the table's protocol when its columns need a feature, while added columns do.
  A replacement that only changes the order of columns leaves the old order. In both cases, and if columns are
  added among others, we write the version's line of the log ourselves (`_put_line`).
* It names the features that readers need, and not `invariants`, the one for columns that may not be NULL.
  Delta's own connector for Spark then refuses the table, also to read it. So we write the first line of each
  table ourselves. A table that an earlier release made gets the name with the next line of ours.
* A handle does not move to the version that it committed: refresh after each write.
* A commit that only changes files takes it 4 ms of CPU, and its update 2 ms more. We write that line of the
  log ourselves, and apply it to what we know of the files. The handle stays behind until somebody needs it
  (`_caught_up`), or a checkpoint is due, which delta-rs writes. A table with settings or features that are
  not ours, which may ask for more in a line, is left to delta-rs.
* It reads deletion vectors and never writes them. A table that has got one (`VECTORS`) is only written by
  lines of ours, and `replay` reads its files. The line with its first vector raises the table's protocol.
* It accepts the removal of dead files and older `txn` versions. The commit protocol checks first.
* It cleans up its logs after 30 days; marks pin versions for longer, so the tables' settings forbid that.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, SchemaMismatchError, TableNotFoundError
from deltalake.schema import Field
from deltalake.transaction import (
    AddAction,
    CommitProperties,
    RemoveAction,
    Transaction,
)

from headrace.core.errors import Definite, Transient
from headrace.lake.format import datafile, delta_line, formatfile, layout, schemas
from headrace.lake.format.plan import DataFile, TableStep
from headrace.lake.format.vector import FileRows, Vector, file_rows
from headrace.lake.log import replay
from headrace.lake.log.table_errors import (
    TableRefusals,
    failed_error,
    foreign_settings_error,
    gone_error,
    unreadable_error,
)
from headrace.lake.store.contract import Store, locate

PLAN_ID = "headracePlan"  # the key of the plan's id in a commit of ours
# Who opens a table, and delta-rs at each commit, replays all commits since the last checkpoint: 1 ms at the
# first, 10-15 ms at the hundredth (measured). A checkpoint costs about 20 ms for a thousand live files.
_CHECKPOINT_INTERVAL = 25  # of delta-rs, by the table's setting
_OUR_INTERVAL = 2 * _CHECKPOINT_INTERVAL  # of the lines that we write, which replay nothing
_CONFIGURATION: Mapping[str, str | None] = {
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": str(_CHECKPOINT_INTERVAL),
}


_LINES = 8  # of a log, read before opening the table is quicker

# Delta's readers take the statistics of so many columns; in a history ours stand behind the user's.
_READ_OF = 32
_READ_ALL = {"delta.dataSkippingNumIndexedCols": "-1"}
VECTORS = "deletionVectors"  # the feature of tables that have vectors, or had
_TAKES_VECTORS = {"delta.enableDeletionVectors": "true"}
_PLAIN_VERSION = 2  # of a writer; later versions have features that we never ask for
_PLAIN_FEATURES = {
    "timestampNtz",
    "appendOnly",
    "invariants",
    VECTORS,
}  # the last two: if a setting or a column says so


@dataclass(frozen=True, slots=True)
class Stamp:
    """The author of a commit: the application and its epoch (Delta's `txn`), and the plan."""

    app: str
    epoch: int
    plan_id: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One version of a table's log, as far as we must judge it."""

    plan_id: str | None
    rewrite: bool  # it changed files, but not the table's contents
    epoch: int | None = None  # of ours


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A file that the log holds live."""

    path: str
    size: int
    rows: int  # that stand in the file
    vector: Vector | None = None

    @property
    def alive(self) -> int:
        """The number of its rows that are not deleted."""
        return self.rows - (self.vector.rows if self.vector else 0)


class LakeTable:
    """A Delta table at a folder of the lake; the handle stays open and reads on from where it was."""

    def __init__(self, store: Store, folder: str) -> None:
        self.store = store
        self.folder = folder
        self._delta: DeltaTable | None = None
        self._ahead = 0  # so many versions of ours stand on top of the handle's
        self._files: dict[str, LiveFile] | None = None  # as of `version`; None: not read
        self._described: replay.Live | None = None  # of a table with vectors; None: not read
        self._plain: bool | None = None  # nobody has set anything on it but we; None: not read
        self._unnamed = False  # its protocol lacks a feature that its columns need; known with `_plain`
        self._ours: dict[int, Entry] = {}  # the last version that we know to be our own

    @property
    def version(self) -> int:
        """The newest version as of the last refresh; -1 where there is no table."""
        return -1 if self._delta is None else int(self._delta.version()) + self._ahead

    def refresh(self) -> int:
        """Read the log to its end and return the newest version."""
        with TableRefusals(self.folder):
            if self._delta is None:
                self._delta = _open(self.store, self.folder, None)
            elif self.store.exists(line_key(self.folder, self.version + 1)):
                # Asked first: most looks find nothing new, and the update costs milliseconds even then.
                self._delta.update_incremental()
                self._ahead, self._files, self._described, self._plain = 0, None, None, None
        return self.version

    def at(self, version: int) -> LakeTable:
        """Open this table as of an older version."""
        older = LakeTable(self.store, self.folder)
        try:
            older._delta = _open(self.store, self.folder, version)
        except (DeltaError, OSError) as error:
            # delta-rs has one error for a version that is not there and for a store that does not answer.
            if self.store.exists(line_key(self.folder, version)):
                raise failed_error(self.folder, error) from error
            raise gone_error(self.folder, version) from error
        if older.version != version:
            raise gone_error(self.folder, version)
        return older

    def files(self) -> dict[str, LiveFile]:
        """The live files by their path relative to the table's folder."""
        if self._delta is None:
            return {}
        if self._files is None:
            handle = _caught_up(self)
            files = _described_files(self) if _has_vectors(handle) else _listed_files(self, handle)
            self._files = {file.path: file for file in files}
        return dict(self._files)

    def with_vector(self, path: str, vector: Vector) -> DataFile:
        """Describe a live file as it will be with this vector, for a step that adds and removes it."""
        if self._files is None:
            self.files()
        assert self._files is not None
        return replace(_describe(self)[file_rows(self._files[path])], vector=vector)

    @property
    def takes_vectors(self) -> bool:
        """Tell whether a step may give a file of the table a vector."""
        return self._delta is not None and _is_plain(self, self._delta)

    def describe(self) -> pa.Table:
        """The live files with what the log says of each: a row a file.

        `path`, `num_records`, and for the columns that have statistics `min.<column>`, `max.<column>` and
        `null_count.<column>`, columns as the lake spells them.
        """
        if self._delta is None:
            return pa.table({"path": pa.array([], pa.string())})
        handle = _caught_up(self)
        with TableRefusals(self.folder):
            actions: Any = pa.table(handle.get_add_actions(flatten=True))
        paths = pa.array([unquote(path) for path in actions["path"].to_pylist()], pa.string())
        return actions.set_column(actions.column_names.index("path"), "path", paths)

    def live(self) -> frozenset[str]:
        return frozenset(self.files())

    def contents(self) -> frozenset[FileRows]:
        """The live files, each with its vector: equal ones are equal rows."""
        if self._delta is not None and _has_vectors(_caught_up(self)):
            return frozenset(_describe(self))
        return frozenset(map(file_rows, self.files().values()))

    def schema(self) -> pa.Schema:
        """The table's Arrow schema, columns named as the user names them."""
        if self._delta is None:
            raise Definite(
                "LAKE_TABLE_ABSENT",
                f'there is no lake table at "{self.folder}"',
                hint="headrace status lists the tables of the lake",
            )
        return schemas.from_lake(pa.schema(self._delta.schema().to_arrow()))

    def entry(self, version: int) -> Entry | None:
        """Read the log's line of one version; None where it is not there (any more)."""
        if version in self._ours:
            return self._ours[version]
        text = self.store.get(line_key(self.folder, version))
        if text is None:
            return None
        try:
            actions = [json.loads(line) for line in text.splitlines() if line]
        except ValueError as error:
            raise unreadable_error(self.folder) from error
        if not actions:
            raise unreadable_error(self.folder)
        infos: list[dict[str, Any]] = [action["commitInfo"] for action in actions if "commitInfo" in action]
        files = [action[kind] for action in actions for kind in ("add", "remove") if kind in action]
        quiet = not any(kind in action for action in actions for kind in ("metaData", "protocol"))
        rewrite = quiet and not any(file.get("dataChange", True) for file in files)
        epochs = [action["txn"]["version"] for action in actions if "txn" in action]
        plan_id = infos[0].get(PLAN_ID) if infos else None
        return Entry(plan_id, rewrite, epochs[0] if plan_id is not None and epochs else None)

    def restoration(self, base: int) -> TableStep | None:
        """Make the step that restores the table's contents at version `base`; None if it has them.

        The files of `base` are still there: vacuum takes none that a mark or a plan names.
        """
        if base < 0:
            live = tuple(sorted(self.live()))
            return TableStep(path=self.folder, base=self.version, remove=live) if live else None
        older = self.at(base)
        then, now = older.contents(), self.contents()
        back = [datafile.describe(self.store, self.folder, file) for file in _by_path(then - now)]
        if older.schema().equals(self.schema()):
            gone = tuple(file.path for file in _by_path(now - then))
            return TableStep(self.folder, self.version, tuple(back), gone) if back or gone else None
        kept = [datafile.describe(self.store, self.folder, file) for file in _by_path(then & now)]
        return TableStep(
            path=self.folder,
            base=self.version,
            add=(*back, *kept),
            remove=tuple(sorted(self.live())),
            schema=schemas.encode(older.schema()),
        )

    def checkpoint(self) -> None:
        """Write a checkpoint of the newest version, so that nobody replays earlier commits."""
        handle = _caught_up(self)
        with TableRefusals(self.folder):
            handle.create_checkpoint()

    def log_keys(self, version: int) -> list[str]:
        """The files of the log that hold this version, with the checkpoint that was made at it."""
        keys = [line_key(self.folder, version)]
        checkpoint = f"{self.folder}/_delta_log/{version:020d}.checkpoint.parquet"
        # delta-rs counts versions from 1 here: checkpoints are made at 24, 49, ...
        if (version + 1) % _CHECKPOINT_INTERVAL == 0 and self.store.exists(checkpoint):
            keys += [checkpoint, f"{self.folder}/_delta_log/_last_checkpoint"]
        return keys

    def write(self, step: TableStep, stamp: Stamp, undone: Sequence[FileRows] = ()) -> bool:
        """Try to commit the step as version `base + 1`; the handle must stand at `base`.

        `undone` are files that go, each with exactly its vector: what a torn line added may not be live.
        """
        assert self.version == step.base, "refresh and compare before writing"
        if self._delta is not None and step.schema is None and _writes_own_line(self, self._delta, step):
            return _append(self, step, stamp, undone)
        assert not undone, "a line without columns undoes torn ones"
        try:
            done = _commit(self, step, stamp)
        except (DeltaError, OSError) as error:
            # The log decides whether it happened, not the answer.
            if self.refresh() <= step.base:
                if isinstance(error, SchemaMismatchError):
                    raise  # the step is at fault, not the world
                raise failed_error(self.folder, error) from error
            return False
        self.refresh()
        if not done:
            return False
        self._ours = {step.base + 1: Entry(stamp.plan_id, rewrite=False, epoch=stamp.epoch)}
        return True


def _open(store: Store, folder: str, version: int | None) -> DeltaTable | None:
    try:
        return DeltaTable(locate(store, folder), version=version, storage_options=store.storage_options)
    except TableNotFoundError:
        return None


def _caught_up(table: LakeTable) -> DeltaTable:
    """Return the handle at the table's `version`."""
    assert table._delta is not None
    if table._ahead:
        with TableRefusals(table.folder):
            table._delta.load_as_version(table.version)
        table._ahead = 0
    return table._delta


def _listed_files(table: LakeTable, handle: DeltaTable) -> list[LiveFile]:
    """The live files of a table without vectors, as delta-rs lists them."""
    with TableRefusals(table.folder):
        actions: Any = pa.table(handle.get_add_actions())
    rows = actions.select(["path", "size_bytes", "num_records"]).to_pylist()
    return [LiveFile(unquote(row["path"]), row["size_bytes"], row["num_records"] or 0) for row in rows]


def _described_files(table: LakeTable) -> list[LiveFile]:
    """The live files of a table with vectors."""
    files = [_live(file) for file in _describe(table).values()]
    if len({file.path for file in files}) < len(files):
        raise unreadable_error(table.folder)  # a power cut tore a line that changed a vector
    return files


def _describe(table: LakeTable) -> replay.Live:
    if table._described is None:
        table._described = replay.live_files(table.store, table.folder, table.version)
    return table._described


def find_unneeded(table: LakeTable, hours: int, version: int) -> tuple[set[str], set[str]]:
    """Find files that no reader of the newest version, of this one, or of one of the last hours needs.

    Return the paths of those that the log once held, and of those that it never did.
    """
    if table._delta is None:
        return set(), set()
    pins = [version] if version < table.version else None
    handle = _caught_up(table)
    with TableRefusals(table.folder):
        held, every = (
            handle.vacuum(
                hours, dry_run=True, enforce_retention_duration=False, full=full, keep_versions=pins
            )
            for full in (False, True)
        )
    known = {unquote(path) for path in held}
    return known, {unquote(path) for path in every} - known


def figures(table: LakeTable, *names: str) -> list[dict[str, Any]]:
    """Read `path`, `num_records` and these columns of `describe`: all of a wide table are many."""
    described = table.describe()
    wanted = {"path", "num_records", *names}
    stated = described.select([name for name in described.column_names if name in wanted])
    found: list[dict[str, Any]] = stated.to_pylist()
    return found


def keeps_columns(store: Store, folder: str, earlier: int, version: int) -> bool:
    """Tell whether a version has the columns of an earlier one: no line between them has others.

    False also where that takes more than some lines, or a line is gone.
    """
    if not earlier <= version <= earlier + _LINES:
        return False
    lines = (store.get(line_key(folder, number)) for number in range(earlier + 1, version + 1))
    return all(line is not None and b'"metaData"' not in line for line in lines)


def line_key(folder: str, version: int) -> str:
    return f"{folder}/_delta_log/{version:020d}.json"


def _is_plain(table: LakeTable, delta: DeltaTable) -> bool:
    """Tell whether a line of file actions is all that a commit of this table needs."""
    if table._plain is None:
        protocol, settings = delta.protocol(), delta.metadata().configuration
        features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
        table._plain = (
            settings.keys() <= {*_CONFIGURATION, *_READ_ALL, *_TAKES_VECTORS}
            and features <= _PLAIN_FEATURES
            and (bool(features) or protocol.min_writer_version <= _PLAIN_VERSION)
            and "delta.invariants" not in delta.schema().to_json()
        )
        table._unnamed = bool(features) and not schemas.writer_features(table.schema()) <= features
    return table._plain


def _has_vectors(delta: DeltaTable) -> bool:
    return VECTORS in (delta.protocol().reader_features or ())


def _writes_own_line(table: LakeTable, delta: DeltaTable, step: TableStep) -> bool:
    """Tell whether we write the line of a step that only changes files; with vectors nobody else can."""
    if _is_plain(table, delta):
        return True
    if _has_vectors(delta) or any(file.vector for file in step.add):
        raise foreign_settings_error(table.folder)
    return False


def _by_path(files: Iterable[FileRows]) -> list[FileRows]:
    return sorted(files, key=lambda file: file.path)


def _append(table: LakeTable, step: TableStep, stamp: Stamp, undone: Sequence[FileRows]) -> bool:
    """Put a commit that only changes files; False if its place is taken."""
    known = table.files() if step.remove or table._files is not None else None
    first = _first_vector(table, step)
    if first:  # before any release that would ignore them reads
        formatfile.raise_to(table.store, formatfile.VECTORS)
    elif table._unnamed:
        assert table._delta is not None
        first = [_with_features(table._delta, frozenset(), table.schema())]
    line = delta_line.text(
        *first,
        *_removals(known or {}, step, changes=not step.rewrite),
        *(delta_line.remove(file.path, changes=True, vector=file.vector) for file in undone),
        *(delta_line.add(file, changes=not step.rewrite) for file in step.add),
        {"txn": {"appId": stamp.app, "version": stamp.epoch}},
        **{PLAN_ID: stamp.plan_id},
    )
    place = line_key(table.folder, step.base + 1)
    # Not lasting, as what delta-rs writes: `lake.log.durable` makes it durable before it is acknowledged.
    if not table.store.put_if_absent(place, line, lasting=False):
        table.refresh()
        return False
    _note(table, step, known)
    if undone:
        table._files = table._described = None
    table._ours = {step.base + 1: Entry(stamp.plan_id, rewrite=False, epoch=stamp.epoch)}
    # The commit stands; a checkpoint saves time and nothing else, and a handle at the new protocol.
    with suppress(DeltaError, OSError, Transient):
        if first:
            table._plain = None
            _caught_up(table)
        if (table.version + 1) % _OUR_INTERVAL == 0:
            table.checkpoint()
    return True


def _note(table: LakeTable, step: TableStep, known: dict[str, LiveFile] | None) -> None:
    """Apply a step that stands in the log to what is known of the table."""
    table._ahead += 1
    if known is not None:
        for path in step.remove:
            known.pop(path, None)
        table._files = known | {file.path: _live(file) for file in step.add}
    if table._described is not None:
        for each in [each for each in table._described if each.path in step.remove]:
            del table._described[each]
        table._described |= {file_rows(file): file for file in step.add}


def _first_vector(table: LakeTable, step: TableStep) -> list[Mapping[str, Any]]:
    """The protocol and the settings of a table that gets its first vector by this step."""
    delta = table._delta
    assert delta is not None
    if not any(file.vector for file in step.add) or _has_vectors(delta):
        return []
    said = columns(table)
    settings = {"configuration": {**said["configuration"], **_TAKES_VECTORS}}
    return [_with_features(delta, frozenset({VECTORS}), table.schema()), {"metaData": said | settings}]


def _removals(live: Mapping[str, LiveFile], step: TableStep, *, changes: bool) -> Iterator[Mapping[str, Any]]:
    for path in step.remove:
        file = live.get(path)
        size, vector = (None, None) if file is None else (file.size, file.vector)
        yield delta_line.remove(path, changes=changes, size=size, vector=vector)


def _commit(table: LakeTable, step: TableStep, stamp: Stamp) -> bool:
    """Make the commit; False if its place is taken."""
    properties = CommitProperties(
        custom_metadata={PLAN_ID: stamp.plan_id},
        max_commit_retries=0,
        app_transactions=[Transaction(stamp.app, stamp.epoch)],
    )
    if table._delta is None:
        return _create(table.store, step, stamp)
    delta = _caught_up(table)
    if step.schema is None:
        _change_files(delta, step, table.files() if step.remove else {}, properties)
    elif not (widens := _widens(delta, step)) and set(step.remove) != table.live():
        raise AssertionError("a step that replaces the schema removes every live file")
    elif _has_vectors(delta):
        if not _is_plain(table, delta):
            raise foreign_settings_error(table.folder)
        return _put_line(table, step, stamp)
    elif (columns := _added_columns(delta, step)) and not _missing_features(delta, step.schema):
        delta.alter.add_columns(columns, commit_properties=properties)
    elif widens or _needs_own_line(delta, step.schema):
        return _put_line(table, step, stamp)
    else:
        _replace(delta, step, properties)
    return True


def _create(store: Store, step: TableStep, stamp: Stamp) -> bool:
    """Put the log's first line; False if there is one."""
    if step.schema is None:
        raise AssertionError("a step that creates a table gives its schema")
    schema = schemas.decode(step.schema)
    wide = layout.table_of_history(step.path) is not None and len(schema) > _READ_OF
    settings = {**_CONFIGURATION, **(_READ_ALL if wide else {})}
    line = delta_line.text(
        delta_line.protocol(schemas.features(schema), schemas.writer_features(schema)),
        delta_line.metadata(_delta_schema(step.schema).to_json(), settings),
        *(delta_line.add(file, changes=True) for file in step.add),
        {"txn": {"appId": stamp.app, "version": stamp.epoch}},
        operation="CREATE TABLE",
        **{PLAN_ID: stamp.plan_id},
    )
    return store.put_if_absent(line_key(step.path, 0), line, lasting=False)


def _change_files(
    delta: DeltaTable, step: TableStep, live: Mapping[str, LiveFile], properties: CommitProperties
) -> None:
    now = int(time.time() * 1000)
    removals = [
        RemoveAction(
            path=path,
            data_change=not step.rewrite,
            deletion_timestamp=now,
            size=live[path].size if path in live else None,
            partition_values={},
        )
        for path in step.remove
    ]
    delta.create_write_transaction(
        [*removals, *(_add(file, changes=not step.rewrite) for file in step.add)],
        mode="append",
        schema=delta.schema(),
        commit_properties=properties,
    )


def _replace(delta: DeltaTable, step: TableStep, properties: CommitProperties) -> None:
    assert step.schema is not None
    delta.create_write_transaction(
        [_add(file) for file in step.add],
        mode="overwrite",
        schema=_delta_schema(step.schema),
        commit_properties=properties,
    )


def _added_columns(delta: DeltaTable, step: TableStep) -> list[Field]:
    """Return the columns that the step adds at the end, if that is all that it does."""
    assert step.schema is not None
    new, old = _delta_schema(step.schema).fields, delta.schema().fields
    return new[len(old) :] if _widens(delta, step) and new[: len(old)] == old else []


def _widens(delta: DeltaTable, step: TableStep) -> bool:
    """Tell if the step adds columns that are NULL in every row, in any place, and does nothing else."""
    assert step.schema is not None
    new, old = _delta_schema(step.schema).fields, delta.schema().fields
    added = [field for field in new if field not in old]
    alone = not step.add and not step.remove and len(new) == len(old) + len(added)
    return alone and bool(added) and all(field.nullable for field in added)


def _needs_own_line(delta: DeltaTable, schema: str) -> bool:
    """Tell if delta-rs would replace the columns and leave their order or the protocol as they were."""
    return bool(_missing_features(delta, schema)) or _reorders(delta, schema)


def _reorders(delta: DeltaTable, schema: str) -> bool:
    """Tell if the columns are those that the table has, in another order."""
    new, old = _delta_schema(schema).fields, delta.schema().fields
    return new != old and sorted(new, key=str) == sorted(old, key=str)


def _missing_features(delta: DeltaTable, schema: str) -> frozenset[str]:
    """Return the features that these columns need and the table's protocol has not."""
    return schemas.features(schemas.decode(schema)) - frozenset(delta.protocol().reader_features or ())


def _delta_schema(text: str) -> Schema:
    return Schema.from_arrow(schemas.to_lake(schemas.decode(text)))


def _put_line(table: LakeTable, step: TableStep, stamp: Stamp) -> bool:
    """Replace columns and files, raise the protocol if need be, at once; False if its place is taken."""
    assert table._delta is not None
    schema = step.schema
    assert schema is not None
    live = table.files() if _has_vectors(table._delta) else {}
    if live:
        step = _without_kept(live, step)
    line = delta_line.text(
        *_protocol_line(table._delta, schema),
        {"metaData": columns(table) | {"schemaString": _delta_schema(schema).to_json()}},
        *_removals(live, step, changes=True),
        *(delta_line.add(file, changes=True) for file in step.add),
        {"txn": {"appId": stamp.app, "version": stamp.epoch}},
        **{PLAN_ID: stamp.plan_id},
    )
    return table.store.put_if_absent(line_key(table.folder, step.base + 1), line)


def _without_kept(live: Mapping[str, LiveFile], step: TableStep) -> TableStep:
    """Leave out files that stay as they are: a line must not remove and add a file with the same vector."""
    kept = {file.path for file in step.add if file.path in live and live[file.path].vector == file.vector}
    kept &= set(step.remove)
    return replace(
        step,
        add=tuple(file for file in step.add if file.path not in kept),
        remove=tuple(path for path in step.remove if path not in kept),
    )


def _protocol_line(delta: DeltaTable, schema: str) -> list[Mapping[str, Any]]:
    """The protocol that the table needs for new columns, if it has another one."""
    missing = _missing_features(delta, schema)
    return [_with_features(delta, missing, schemas.decode(schema))] if missing else []


def _with_features(delta: DeltaTable, features: frozenset[str], schema: pa.Schema) -> Mapping[str, Any]:
    """The protocol with further features, and with those that writers of these columns must know."""
    known = delta.protocol()
    writers = features.union(known.writer_features or (), schemas.writer_features(schema))
    return delta_line.protocol(features.union(known.reader_features or ()), writers)


def columns(table: LakeTable) -> dict[str, Any]:
    """A table's columns and configuration, as the `metaData` of a line of its log says them."""
    delta = table._delta
    assert delta is not None
    known = delta.metadata()
    return {
        "id": str(known.id),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": delta.schema().to_json(),
        "partitionColumns": known.partition_columns,
        "configuration": known.configuration,
        "createdTime": known.created_time,
    }


def tables_of(store: Store) -> Callable[[str], LakeTable]:
    """The store's tables by folder, each opened once."""
    return cache(partial(LakeTable, store))


def _live(file: DataFile) -> LiveFile:
    return LiveFile(file.path, file.size, file.rows, file.vector)


def _add(file: DataFile, *, changes: bool = True) -> AddAction:
    assert file.vector is None, "delta-rs writes no vectors"
    return AddAction(
        path=file.path,
        size=file.size,
        partition_values={},
        modification_time=int(time.time() * 1000),
        data_change=changes,
        stats=file.stats,
    )
