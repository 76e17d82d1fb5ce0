"""The export of a source's marks to an Iceberg catalog: where it goes, and which versions its snapshots name.

    _headrace/iceberg/<source>.json

An Iceberg snapshot names data files of the lake. So each version of a Delta table that a listed snapshot
shows is pinned here before the catalog lists it, and stays pinned for the grace time after the catalog
forgets it:

    pin ──► catalog lists the snapshot ──► tag and snapshot go (`gone_at`) ──► grace ──► the sweep may delete

A pin is a range of exported epochs, since most tables do not change from one exported mark to the next. The
exporter alone writes the file; the sweep reads it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from headrace.core.records import as_list, parse, to_record
from headrace.lake.format import layout


class ExportFiles(Protocol):
    """The part of a `Store` that is needed here."""

    def put(self, key: str, data: bytes, /) -> None: ...

    def get(self, key: str) -> bytes | None: ...

    def delete(self, key: str) -> None: ...

    def sync(self, keys: Iterable[str]) -> None: ...


@as_list
@dataclass(frozen=True, slots=True)
class Pin:
    """A version of a folder that the exported marks from epoch `first` to epoch `last` show."""

    version: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class ExportedMark:
    """A mark that was exported; until `done`, its commit in the catalog may or may not have happened."""

    epoch: int
    at: datetime
    position: str
    is_done: bool = False
    gone_at: datetime | None = None  # when the catalog forgot it


@dataclass(frozen=True, slots=True)
class Export:
    """The export of a source; `properties` are those of the catalog, without secrets."""

    catalog: str
    properties: Mapping[str, str]
    namespace: str
    every: str
    tags: int
    lake: str  # the id of the lake that was attached; a copy of the lake has another one
    marks: tuple[ExportedMark, ...] = ()
    folders: Mapping[str, tuple[Pin, ...]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)  # code by table
    held_folders: tuple[
        str, ...
    ] = ()  # folders whose tables the catalog lists as others left them: all their pins stay

    @property
    def is_in_lake(self) -> bool:
        """Tell whether the catalog is the one that a lake has of its own."""
        return not self.catalog and not self.properties

    @property
    def newest(self) -> ExportedMark | None:
        """The last mark that is known to be in the catalog."""
        return next((mark for mark in reversed(self.marks) if mark.is_done and mark.gone_at is None), None)

    def kept_since(self, moment: datetime) -> Export:
        """Forget the marks that were gone before this moment, and pins that only they had."""
        kept = [mark for mark in self.marks if mark.gone_at is None or mark.gone_at > moment]
        epochs = [mark.epoch for mark in kept]
        folders = {
            folder: left
            for folder, pins in self.folders.items()
            if (left := self._still_shown(folder, pins, epochs))
        }
        return replace(self, marks=tuple(kept), folders=folders)

    def _still_shown(self, folder: str, pins: tuple[Pin, ...], epochs: Iterable[int]) -> tuple[Pin, ...]:
        if folder in self.held_folders:
            return pins
        return tuple(pin for pin in pins if any(pin.first <= epoch <= pin.last for epoch in epochs))

    def pinning(self, mark: ExportedMark, versions: Mapping[str, int]) -> Export:
        """Return the export with these versions pinned for a mark that is about to be exported."""
        folders = dict(self.folders)
        for folder, version in versions.items():
            pins = folders.get(folder, ())
            if pins and pins[-1].version == version:
                folders[folder] = (*pins[:-1], replace(pins[-1], last=mark.epoch))
            else:
                folders[folder] = (*pins, Pin(version, mark.epoch, mark.epoch))
        others = tuple(known for known in self.marks if known.epoch != mark.epoch)
        return replace(self, marks=(*others, mark), folders=folders)

    def unpinning(self, epoch: int, folders: Iterable[str]) -> Export:
        """Return the export whose mark of this epoch lacks the tables of these folders."""
        left = {
            folder: tuple(
                replace(pin, last=min(pin.last, epoch - 1))
                for pin in self.folders[folder]
                if pin.first < epoch
            )
            for folder in folders
        }
        return replace(self, folders={**self.folders, **left})

    def listing(self, epochs: Iterable[int], now: datetime) -> Export:
        """Return the export once the catalog lists the tags of these epochs and no others."""
        listed = set(epochs)
        marks = (
            replace(mark, is_done=True, gone_at=None)
            if mark.epoch in listed
            else replace(mark, gone_at=mark.gone_at or now)
            for mark in self.marks
        )
        return replace(self, marks=tuple(marks))


def read(files: ExportFiles, source: str) -> Export | None:
    """Read the export of a source; None where it has none."""
    data = files.get(layout.export_key(source))
    return None if data is None else parse(Export, data)


def write(files: ExportFiles, source: str, export: Export) -> None:
    """Write it down, durably: what it pins may be deleted as soon as it does not."""
    key = layout.export_key(source)
    files.put(key, json.dumps(to_record(export), separators=(",", ":")).encode())
    files.sync([key])


def pinned_versions(files: ExportFiles, source: str, before: datetime) -> dict[str, dict[int, int]]:
    """By folder, each version that a snapshot shows, or showed after `before`, with its last epoch."""
    export = read(files, source)
    if export is None:
        return {}
    return {
        folder: {pin.version: pin.last for pin in pins}
        for folder, pins in export.kept_since(before).folders.items()
    }
