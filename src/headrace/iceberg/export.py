"""One mark into the catalog: a snapshot of each table that changed, a tag on all, one transaction.

    look        the newest durable mark; the catalog's rows, and whether each is still ours
    pin         the versions that the mark shows            ──► `_headrace/iceberg/<source>.json`
    see         the mark is still kept: so no sweep has passed it by
    write       manifests and metadata files                ──► new names; nobody reads them yet
    commit      one SQL transaction: every row, the old tags gone with it
    note        the mark is there; the pins of the tags that went stay for the grace time

Killed before the commit, it leaves files that nobody names (`tidy`) and pins that the next export lets go.
Killed after it, the next look finds the mark in the names of the metadata files. So a mark is exported once,
or not at all when a later one is there: catching up is one snapshot a table.

A table of ours that another program changed in the catalog is left alone with an error, until `rebuild` or
`detach`; its pins stay. The other tables go on.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.failpoint import failpoint
from headrace.iceberg import contents, manifests, metadata
from headrace.iceberg.access import given_elsewhere, open_catalog
from headrace.iceberg.catalog import (
    OURS,
    CatalogRows,
    Identifier,
    Move,
    refuse_afar,
)
from headrace.iceberg.contents import Content, Contents
from headrace.iceberg.judgement import Judgement
from headrace.iceberg.manifests import MetadataPlace
from headrace.iceberg.settings import DATABASE, IcebergConfig, public
from headrace.iceberg.shapes import Json
from headrace.lake.format import exportfile, layout
from headrace.lake.format.exportfile import Export, ExportedMark
from headrace.lake.log import catalog, durable
from headrace.lake.log.marks import Mark, Marks
from headrace.lake.log.table import LakeTable
from headrace.lake.store.contract import Store, refusals

ATTEMPTS = 3
SYNCED_ONE_BY_ONE = 64
TIDY_SECONDS = 600.0

# One export at a time in a process: a run's thread, or a command that it carries out.
_ONE = threading.RLock()


@dataclass(slots=True)
class Exporter:
    """Exports the marks of a source; it remembers the metadata files that it wrote."""

    store: Store
    source: str
    lake_id: str
    grace: timedelta
    config: IcebergConfig | None = None  # of the run; else the lake's own record says where to
    left_out: dict[str, HeadraceError] = field(default_factory=dict)
    _files: dict[str, Json] = field(default_factory=dict)  # the current metadata, by address
    _lists: dict[str, list[str]] = field(default_factory=dict)  # manifests by the list that names them
    _tidied_at: float = -TIDY_SECONDS

    # --- attached to a catalog, or not --------------------------------------------------------------

    def attachment(self) -> Export | None:
        """The record of the export; made here where the run's configuration asks for one."""
        record = self._own_record()
        if self.config is None:
            return record
        return self.attach(self.config) if record is None else _agree(record, self.config, self.source)

    def _own_record(self) -> Export | None:
        """The record; in a copy of a lake forget the one that came with it, for the original exports on."""
        record = exportfile.read(self.store, self.source)
        if record is None or record.lake == self.lake_id:
            return record
        with _ONE:
            is_empty = record.is_in_lake and _take_out(self, record, IcebergConfig())
            self._files.clear()
            _forget(self.store, self.source, with_database=is_empty)
        return None

    def attach(self, config: IcebergConfig) -> Export:
        """Begin to export to a catalog; nothing is there before the first export."""
        with _ONE:
            refuse_afar(self.store)
            known = self._own_record()
            if known is not None:
                return _agree(known, config, self.source)
            namespace = config.namespace_of(self.source)
            with open_catalog(config, self._root) as rows:
                _refuse_others(self.lake_id, rows, namespace)
            place = (config.catalog, public(config.properties), namespace)
            export = Export(*place, config.every, config.tags, self.lake_id)
            exportfile.write(self.store, self.source, export)
            return export

    def detach(self) -> str:
        """Take our tables and namespaces out of the catalog, and remove their metadata; the namespace."""
        with _ONE:
            record = self._record()
            is_empty = _take_out(self, record, self._settings(record)) and record.is_in_lake
            failpoint("iceberg.detach.after")
            self._files.clear()
            _forget(self.store, self.source, with_database=is_empty)
            return record.namespace

    # --- a mark -------------------------------------------------------------------------------------

    def newest(self) -> Mark | None:
        """The newest mark that no power cut takes back."""
        marks = Marks(self.store, self.source).index()
        if not marks:
            return None
        until = durable.read(self.store, self.source)
        if until is None or self.store.durable_at_once:
            return marks[-1]
        return next((mark for mark in reversed(marks) if mark.epoch <= until.epoch), None)

    def export(self, *, rebuild: bool = False) -> ExportedMark | None:
        """Export the newest mark; None where the catalog has it already, or there is none yet."""
        with _ONE:
            for _ in range(ATTEMPTS):
                record, mark = self._record(), self.newest()
                if mark is None:
                    return None
                with open_catalog(self._settings(record), self._root) as rows:
                    _refuse_others(self.lake_id, rows, record.namespace)
                    attempt = _Attempt(self, rows, record, mark, rebuild)
                    done = attempt.run()
                if done is not _AGAIN:
                    return done
            raise Transient(
                "ICEBERG_CATALOG_MOVED",
                "the Iceberg catalog or the lake changed each time that a mark was exported",
                hint="nothing to do: the export goes on by itself",
            )

    def tidy(
        self, addresses: Iterable[str], held_folders: Iterable[str] = (), *, has_server: bool = False
    ) -> int:
        """Delete metadata that neither these files name nor any that was replaced within the grace time.

        A server removes the metadata files that it wrote. Data files here are another program's. Of held
        folders nobody can tell what the catalog has.
        """
        held = tuple(f"{contents.home_of(self.source, folder)}/metadata/" for folder in held_folders)
        named: set[str] = set()
        for address in addresses:
            current = self._older(address)
            if current is None:
                return 0  # nobody can tell which files it names
            files = (entry["metadata-file"].removeprefix("file://") for entry in current["metadata-log"])
            for each in (address, *files):
                named.add(each)
                for listed in metadata.lists_of(self._older(each) or {"snapshots": []}):
                    if listed not in self._lists:
                        try:
                            self._lists[listed] = manifests.manifests_of(listed)
                        except Definite:
                            return 0
                    named |= {listed, *self._lists[listed]}
        self._lists = {listed: found for listed, found in self._lists.items() if listed in named}
        spent = [
            key
            for key in self.store.list(layout.iceberg_folder(self.source))
            if "/metadata/" in key
            and f"{self._root}/{key}" not in named
            and not key.startswith(held)
            and not (has_server and metadata.is_of_a_server(key))
        ]
        for key in spent:
            self.store.delete(key)
        return len(spent)

    def tidy_if_due(self, addresses: Iterable[str], held_folders: Iterable[str], *, has_server: bool) -> None:
        """Do that now and then."""
        if time.monotonic() - self._tidied_at >= TIDY_SECONDS or not self.grace:
            self._tidied_at = time.monotonic()
            self.tidy(addresses, held_folders, has_server=has_server)

    def load(self, address: str) -> Json:
        """The metadata at an address of ours."""
        if address not in self._files:
            found = self._older(address)
            if found is None:
                raise metadata.lost_error(address)
            self._files[address] = found
        return self._files[address]

    def _older(self, address: str) -> Json | None:
        if address in self._files:
            return self._files[address]
        data = self.store.get(address.removeprefix(f"{self._root}/"))
        try:
            return None if data is None else json.loads(data)
        except ValueError:
            return None  # a power cut tore it

    def remember(self, files: Mapping[str, Json]) -> None:
        """Know the current metadata of all tables, and no other."""
        self._files = dict(files)

    @property
    def _root(self) -> str:
        return str(Path(self.store.url).resolve())

    def _is_below(self, address: str) -> bool:
        return address.startswith(f"{self._root}/{layout.iceberg_folder(self.source)}/")

    def _settings(self, record: Export) -> IcebergConfig:
        if self.config is not None:
            return self.config
        # The lake has no secrets.
        properties = record.properties and {**record.properties, **given_elsewhere(record.catalog)}
        return IcebergConfig(record.catalog, properties, record.namespace, record.every, record.tags)

    def _record(self) -> Export:
        record = self.attachment()
        if record is None:
            raise Misconfigured(
                "ICEBERG_NOT_ATTACHED",
                f'marks of source "{self.source}" are not exported to Iceberg',
                hint="headrace iceberg attach --lake DIR, or [iceberg] in headrace.toml",
            )
        return record


def _refuse_others(lake_id: str, rows: CatalogRows, namespace: str) -> None:
    owner = rows.owners(namespace).get(namespace)
    if owner not in (None, lake_id):
        raise Misconfigured(
            "ICEBERG_OTHER_LAKE",
            f'the namespace "{namespace}" of the Iceberg catalog belongs to another lake',
            detail=f"the lake with the id {owner}",
            hint="give another namespace: --namespace NAME, or namespace in [iceberg]",
        )


def _take_out(exporter: Exporter, record: Export, config: IcebergConfig) -> bool:
    """Take our tables and namespaces out of the catalog; tell whether it has nothing else."""
    with open_catalog(config, exporter._root) as rows:
        here, owners = rows.locations(record.namespace), rows.owners(record.namespace)
        ours = {
            table: at
            for table, at in here.items()
            if exporter._is_below(at)
            or (owners.get(table[0]) == record.lake and _is_like_ours(exporter.source, at))
        }
        moved = rows.commit([Move(table, at, None) for table, at in ours.items()], {}, {})
        if moved:
            raise _moved_error(moved)
        for error in rows.refusals.values():
            raise error
        left = {space for space, _ in here.keys() - ours.keys()}
        rows.remove_namespaces(
            [
                space
                for space, owner in owners.items()
                if owner == record.lake and not any(f"{each}.".startswith(f"{space}.") for each in left)
            ]
        )
        return not rows.anything()


def _is_like_ours(source: str, address: str) -> bool:
    """Tell whether an export wrote this, wherever the lake was then."""
    return f"/{layout.iceberg_folder(source)}/" in address and metadata.epoch_of(address) is not None


def _forget(store: Store, source: str, *, with_database: bool) -> None:
    """Remove what the lake has of the export; the record goes last, so that it is done again if cut."""
    for key in store.list(layout.iceberg_folder(source)):
        store.delete(key)
    if with_database:
        store.delete(DATABASE)
    store.delete(layout.export_key(source))


def _agree(record: Export, config: IcebergConfig, source: str) -> Export:
    """The record under these settings; refused where they name another place."""
    before = (record.catalog, dict(record.properties), record.namespace)
    if before != (config.catalog, public(config.properties), config.namespace_of(source)):
        raise Misconfigured(
            "ICEBERG_ELSEWHERE",
            f'marks of source "{source}" are exported to another Iceberg catalog or namespace already',
            detail=f'namespace "{record.namespace}"',
            hint="headrace iceberg detach --lake DIR ends that; then attach it anew",
        )
    return replace(record, every=config.every, tags=config.tags)


def _written_at(old: Json, at: str | None) -> str | None:
    """The address of a table's metadata file: that of its row, or the one that a server gave it."""
    found: str | None = old.get("metadata-location", at)
    return found


_AGAIN = ExportedMark(-1, datetime.min.replace(tzinfo=UTC), "")


def _moved_error(moved: Iterable[Identifier]) -> Transient:
    return Transient(
        "ICEBERG_CATALOG_MOVED",
        "another program changed our tables in the Iceberg catalog at the same time",
        detail=", ".join(".".join(table) for table in sorted(moved)),
        hint="end that program, then try again",
    )


_PROPERTIES = {
    "commit.retry.num-retries": "0",  # a commit of another program's fails, and is not built on ours
    "gc.enabled": "false",  # the lake's files are deleted by its own maintenance alone
}


class _Attempt:
    """One attempt to export one mark."""

    def __init__(
        self, exporter: Exporter, rows: CatalogRows, record: Export, mark: Mark, rebuild: bool
    ) -> None:
        self._exporter, self._rows, self._record, self._mark = exporter, rows, record, mark
        self._store, self._source = exporter.store, exporter.source
        self._root = exporter._root
        self._here = rows.locations(record.namespace)
        exporter._files |= rows.files
        self._judgement = Judgement(self._here, record, rebuild, exporter._is_below, exporter.load)
        self._held: set[str] = set()  # folders whose tables stay as they are in the catalog, with their pins
        self._written: list[str] = []
        self._metadata: dict[str, Json] = {}  # by the new address

    def run(self) -> ExportedMark | None:
        before = self._exporter.left_out
        shown = self._contents()
        here = {each.table: self._here.get(each.table) for each in shown}
        if (completed := self._judgement.with_completed(shown)) is not None:
            exportfile.write(self._store, self._source, completed)
            self._record, self._judgement = completed, replace(self._judgement, record=completed)
        # A server that refused a table at this mark may take it now.
        again = self._rows.registers and self._judgement.is_incomplete(self._mark.epoch, shown)
        if not again and not self._judgement.is_news(self._mark.epoch, shown):
            stays = before.keys() & {each.name for each in shown if each.table not in self._here}
            self._exporter.left_out |= {name: before[name] for name in stays}
            return None
        epoch, now = self._mark.epoch, datetime.now(UTC)
        planned = ExportedMark(epoch, now, self._mark.frontier)
        versions = {each.folder: each.version for each in shown}
        left_out = {name: error.code for name, error in self._exporter.left_out.items()}
        held = {*self._held, *self._record.held_folders}  # a table that was refused has its old tags still
        record = replace(self._record, left_out=left_out, held_folders=tuple(sorted(held)))
        record = record.kept_since(now - self._exporter.grace).pinning(planned, versions)
        exportfile.write(self._store, self._source, record)
        failpoint("iceberg.pinned")
        if not self._is_steady(shown):
            return _AGAIN
        kept = self._kept_epochs(record.tags)
        moves, unfit = [], []
        for each in shown:
            try:
                moves.append(self._move(each, here[each.table], kept))
            except Definite as error:
                self._exporter.left_out[each.name] = error
                unfit.append(each)
        moves += self._moves_of_absent({each.table for each in shown}, kept)
        self._sync()
        failpoint("iceberg.written")
        if self._rows.commit(moves, self._missing_spaces(shown), self._metadata):
            return _AGAIN
        failpoint("iceberg.commit.after")
        unfit += self._refused_contents(shown)
        moves = [move for move in moves if move.table not in self._rows.refusals]
        record = self._without(record, unfit)
        self._record = record.listing({*kept, epoch}, datetime.now(UTC))
        exportfile.write(self._store, self._source, self._record)
        failpoint("iceberg.noted")
        self._exporter.remember({**self._rows.files, **self._metadata})
        self._exporter.tidy_if_due(
            self._addresses(moves), self._record.held_folders, has_server=self._rows.registers
        )
        return replace(planned, is_done=True)

    # --- what there is ------------------------------------------------------------------------------

    def _contents(self) -> list[Content]:
        records = catalog.load(self._store, self._source, self._mark.epoch).records
        found = Contents(self._store, self._source, self._record.namespace, self._mark, records)
        known = {folder: pins[-1].version for folder, pins in self._record.folders.items() if pins}
        shown = found.tables(known)
        self._exporter.left_out = dict(found.left_out)
        good = []
        for each in shown:
            try:
                if each.table in self._rows.refusals:
                    raise self._rows.refusals[each.table]
                self._judgement.check(each)
                good.append(each)
            except HeadraceError as error:
                self._exporter.left_out[each.name] = error
                self._held.add(each.folder)
        return good

    def _refused_contents(self, shown: list[Content]) -> list[Content]:
        """The contents of the tables that the catalog did not take; what it has of them keeps its pins."""
        refused = self._rows.refusals
        self._exporter.left_out |= {".".join(table): error for table, error in refused.items()}
        homes = {
            self._here[table].rpartition("/metadata/")[0] for table in refused.keys() & self._here.keys()
        }
        self._held |= {
            folder
            for folder in self._record.folders
            if f"{self._root}/{contents.home_of(self._source, folder)}" in homes
        }
        return [each for each in shown if each.table in refused]

    def _without(self, record: Export, unfit: list[Content]) -> Export:
        """The record after an export that these contents are not in; what the catalog has of them stays."""
        folders = [each.folder for each in unfit]
        left_out = {name: error.code for name, error in self._exporter.left_out.items()}
        held = tuple(sorted({*self._held, *folders}))
        return replace(record.unpinning(self._mark.epoch, folders), left_out=left_out, held_folders=held)

    def _is_steady(self, shown: list[Content]) -> bool:
        """Tell whether all that was pinned was still held when it was: no sweep has passed it by."""
        if Marks(self._store, self._source).index().find(self._mark.epoch) is None:
            return False
        for each in shown:
            if not each.folder.startswith("tables/") and self._judgement.version(each) != each.version:
                table = LakeTable(self._store, each.folder)
                if table.refresh() != each.version and not table.at(each.version).live() <= table.live():
                    return False
        return True

    def _kept_epochs(self, tags: int) -> set[int]:
        """The marks whose tags stay beside the new one."""
        if self._judgement.is_rebuild or tags == 1:
            return set()
        earlier = [epoch for epoch in self._judgement.epochs if epoch != self._mark.epoch]
        return set(earlier[-(tags - 1) :])

    # --- what is made -------------------------------------------------------------------------------

    def _move(self, content: Content, at: str | None, kept: set[int]) -> Move:
        old = None if at is None or self._judgement.is_rebuild else self._exporter.load(at)
        now = int(time.time() * 1000)
        if old is None:
            new = metadata.new_table(f"{self._root}/{content.home}", _PROPERTIES)
        else:
            new, now = old, max(now, old["last-updated-ms"] + 1)
        snapshot = metadata.current(new)
        if snapshot is None or int(snapshot["summary"]["headrace.version"]) != content.version:
            new = self._with_snapshot(content, new, snapshot, now)
        new = metadata.with_tag(new, self._mark.epoch, kept)
        grace = int(self._exporter.grace.total_seconds() * 1000)
        new = metadata.following(new, None if old is None else _written_at(old, at), now, grace)
        new = new | {"properties": new["properties"] | self._where()}
        return Move(content.table, at, self._write(content.home, old, new))

    def _with_snapshot(self, content: Content, new: Json, parent: Json | None, now: int) -> Json:
        table = LakeTable(self._store, content.folder).at(content.version)
        shape = contents.shape_of(self._store, content, table)
        new = metadata.with_columns(new, shape)
        same = parent is not None and contents.only_rewritten(
            self._store, content.folder, int(parent["summary"]["headrace.version"]), content.version
        )
        number, sequence = metadata.new_snapshot_id(), new["last-sequence-number"] + 1
        files = contents.files_of(content, shape, table)
        place = MetadataPlace(self._root, f"{content.home}/metadata")
        with refusals(place.folder):
            listed = manifests.file_list(
                place, parent, number, sequence, metadata.schema_of(new), files, same_rows=same
            )
        self._written += listed.new_files
        snapshot = {
            "snapshot-id": number,
            **({} if parent is None else {"parent-snapshot-id": parent["snapshot-id"]}),
            "sequence-number": sequence,
            "timestamp-ms": now,
            "manifest-list": f"{self._root}/{listed.path}",
            "summary": {
                "operation": listed.operation,
                **listed.summary,
                **self._where(),
                "headrace.version": str(content.version),
            },
            "schema-id": new["current-schema-id"],
        }
        return metadata.with_snapshot(new, snapshot)

    def _where(self) -> dict[str, str]:
        mark = self._mark
        found = {
            "headrace.lake": self._exporter.lake_id,
            "headrace.source": self._source,
            "headrace.epoch": str(mark.epoch),
            "headrace.position": mark.frontier,
            "headrace.time": str(mark.time),
        }
        if mark.upstream_commit_ts is not None:
            found["headrace.commit-timestamp"] = mark.upstream_commit_ts.isoformat()
        return found

    def _moves_of_absent(self, shown: set[Identifier], kept: set[int]) -> list[Move]:
        """Tables that the mark does not show: their old tags go, too, and they with the last."""
        moves = []
        for table, at in self._here.items():
            if (
                table in shown
                or not self._exporter._is_below(at)
                or ".".join(table) in self._exporter.left_out
            ):
                continue
            if metadata.epoch_of(at) is None:
                continue
            old = self._exporter.load(at)
            tags = metadata.tags_of(old)
            if not kept.intersection(tags):
                moves.append(Move(table, at, None))
            elif tags.keys() <= kept:
                self._metadata[at] = old
            else:
                last = max(kept.intersection(tags))
                now = max(int(time.time() * 1000), old["last-updated-ms"] + 1)
                new = metadata.with_tag(old, last, kept)
                grace = int(self._exporter.grace.total_seconds() * 1000)
                new = metadata.following(new, _written_at(old, at), now, grace)
                home = old["location"].removeprefix(f"{self._root}/")
                moves.append(Move(table, at, self._write(home, old, new, last)))
        return moves

    def _write(self, home: str, old: Json | None, new: Json, epoch: int | None = None) -> str:
        key = f"{home}/metadata/{metadata.new_name(self._mark.epoch if epoch is None else epoch)}"
        if not self._rows.registers:
            self._put(key, new)
        elif old is None or old["table-uuid"] != new["table-uuid"]:
            self._put(key, metadata.without_tag(new))
        self._metadata[f"{self._root}/{key}"] = new
        return f"{self._root}/{key}"

    def _put(self, key: str, data: Json) -> None:
        self._store.put(key, json.dumps(data, separators=(",", ":")).encode(), lasting=False)
        self._written.append(key)

    def _sync(self) -> None:
        if len(self._written) <= SYNCED_ONE_BY_ONE:
            self._store.sync(self._written)
        else:
            self._store.sync_all()

    def _missing_spaces(self, shown: list[Content]) -> dict[str, dict[str, str]]:
        owners = self._rows.owners(self._record.namespace)
        spaces = {self._record.namespace}
        for each in shown:
            parts = each.table[0].removeprefix(self._record.namespace).split(".")
            spaces |= {self._record.namespace + ".".join(parts[:count]) for count in range(1, len(parts) + 1)}
        own = {OURS: self._exporter.lake_id, "headrace.source": self._source}
        return {space: own for space in sorted(spaces) if space and space not in owners}

    def _addresses(self, moves: list[Move]) -> set[str]:
        """The metadata files of all our tables after the moves."""
        moved = {move.table: move.new for move in moves}
        after = {**self._here, **moved}
        return {at for at in after.values() if at is not None and self._exporter._is_below(at)}
