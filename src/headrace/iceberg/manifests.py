"""The lists of data files that an Iceberg snapshot shows: manifests, and the list of manifests.

    parent's manifests ── large, and none of their files went ──► named again
                       └─ small, or some of their files went ──► their entries, and the new files, in new ones

So a snapshot costs as much as the manifests that change, and a table of many exports has few of them.
pyiceberg reads and writes the Avro files.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    read_manifest_list,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record

from headrace.iceberg import metadata
from headrace.iceberg.shapes import FileFacts

Json = Any

SMALL = 200  # entries; a manifest with fewer is put together with others
ENTRIES = 500  # of a new manifest


@dataclass(frozen=True, slots=True)
class MetadataPlace:
    """The place where a table's manifests are written, and the address of the lake that files lie in."""

    root: str
    folder: str  # of the metadata

    def address(self, path: str) -> str:
        return f"{self.root}/{path}"

    def new(self, name: str) -> str:
        """The path in the lake of a new file of metadata."""
        return f"{self.folder}/{name}"


@dataclass(frozen=True, slots=True)
class FileList:
    """The list of a snapshot's manifests, the new files that make it, and how many data files changed."""

    path: str
    new_files: tuple[str, ...]
    summary: Mapping[str, str]
    operation: str


def file_list(
    place: MetadataPlace,
    parent: Json | None,
    snapshot: int,
    sequence: int,
    schema: Json,
    files: Mapping[str, FileFacts],
    *,
    same_rows: bool,
) -> FileList:
    """Write the manifests of a snapshot that shows exactly these files, after the snapshot `parent`."""
    io = PyArrowFileIO()
    wanted = {place.address(path): facts for path, facts in files.items()}
    plan = _Plan(io, parent, wanted)
    entries = [*plan.entries(snapshot)]
    names = [place.new(f"{uuid.uuid4().hex}-m{n}.avro") for n in range(-(-len(entries) // ENTRIES))]
    fields = Schema.model_validate(schema)
    manifests = [
        _manifest(io, place.address(name), snapshot, fields, entries[n * ENTRIES : (n + 1) * ENTRIES])
        for n, name in enumerate(names)
    ]
    path = place.new(f"snap-{snapshot}-{uuid.uuid4().hex}.avro")
    before = None if parent is None else parent["snapshot-id"]
    output = io.new_output(place.address(path))
    with write_manifest_list(2, output, snapshot, before, sequence, "deflate") as written:
        written.add_manifests([*manifests, *plan.kept])
    return FileList(path, (*names, path), plan.summary(), plan.operation(same_rows=same_rows))


class _Plan:
    """The manifests that stay, and the entries that are written anew."""

    def __init__(self, io: PyArrowFileIO, parent: Json | None, wanted: Mapping[str, FileFacts]) -> None:
        self._wanted = wanted
        self.kept: list[ManifestFile] = []
        self._old: list[ManifestEntry] = []
        known = set()
        for manifest, live in _live(io, parent):
            paths = {entry.data_file.file_path for entry in live}
            known |= paths
            if len(live) >= SMALL and paths <= wanted.keys():
                self.kept.append(manifest)
            else:
                self._old += live
        self._added = [facts for path, facts in wanted.items() if path not in known]
        self._addresses = {facts.path: path for path, facts in wanted.items()}
        self._gone = [entry for entry in self._old if entry.data_file.file_path not in wanted]

    def entries(self, snapshot: int) -> Iterator[ManifestEntry]:
        for entry in self._old:
            stays = entry.data_file.file_path in self._wanted
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.EXISTING if stays else ManifestEntryStatus.DELETED,
                snapshot_id=entry.snapshot_id if stays else snapshot,
                sequence_number=entry.sequence_number,
                file_sequence_number=entry.file_sequence_number,
                data_file=entry.data_file,
            )
        for facts in self._added:
            yield ManifestEntry.from_args(
                status=ManifestEntryStatus.ADDED,
                snapshot_id=snapshot,
                data_file=_data_file(self._addresses[facts.path], facts),
            )

    def summary(self) -> dict[str, str]:
        files = self._wanted.values()
        return {
            "added-data-files": str(len(self._added)),
            "added-records": str(sum(facts.rows for facts in self._added)),
            "added-files-size": str(sum(facts.size for facts in self._added)),
            "deleted-data-files": str(len(self._gone)),
            "deleted-records": str(sum(entry.data_file.record_count for entry in self._gone)),
            "total-data-files": str(len(files)),
            "total-records": str(sum(facts.rows for facts in files)),
            "total-files-size": str(sum(facts.size for facts in files)),
            "total-delete-files": "0",
            "total-position-deletes": "0",
            "total-equality-deletes": "0",
        }

    def operation(self, *, same_rows: bool) -> str:
        if not self._gone:
            return "append"
        return "replace" if same_rows else "overwrite" if self._added else "delete"


def _live(io: PyArrowFileIO, parent: Json | None) -> Iterator[tuple[ManifestFile, Sequence[ManifestEntry]]]:
    """The manifests of a snapshot, each with its files."""
    if parent is not None:
        for manifest in _manifests(io, parent["manifest-list"]):
            with _readable(manifest.manifest_path):
                yield manifest, manifest.fetch_manifest_entry(io)


def _manifests(io: PyArrowFileIO, address: str) -> list[ManifestFile]:
    with _readable(address):
        return list(read_manifest_list(io.new_input(address)))


@contextmanager
def _readable(address: str) -> Iterator[None]:
    """Raise what a file that is gone or torn makes pyiceberg raise as the table's error."""
    try:
        yield
    except (OSError, ValueError, EOFError, SystemError, zlib.error):
        raise metadata.lost_error(address) from None


def manifests_of(address: str) -> list[str]:
    """The addresses of the manifests that a list names."""
    return [each.manifest_path for each in _manifests(PyArrowFileIO(), address)]


def _manifest(
    io: PyArrowFileIO, address: str, snapshot: int, schema: Schema, entries: Sequence[ManifestEntry]
) -> ManifestFile:
    output = io.new_output(address)
    with write_manifest(2, UNPARTITIONED_PARTITION_SPEC, schema, output, snapshot, "deflate") as writer:
        for entry in entries:
            writer.add_entry(entry)
    return writer.to_manifest_file()


def _data_file(address: str, facts: FileFacts) -> DataFile:
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=address,
        file_format=FileFormat.PARQUET,
        partition=Record(),
        record_count=facts.rows,
        file_size_in_bytes=facts.size,
        value_counts=dict.fromkeys(facts.nulls, facts.rows),
        null_value_counts=dict(facts.nulls),
        lower_bounds=dict(facts.low),
        upper_bounds=dict(facts.high),
    )
