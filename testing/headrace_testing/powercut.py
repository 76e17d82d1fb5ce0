"""A disk that forgets what was not synced: the fault file system for lakes in a directory.

    disk = Disk(lake, journal)
    with disk.watched():           what this process syncs is noted; for a process of its own: `main`
        ...                        the lake is written, by whomever
    disk.cut(random.Random(seed))  the power goes: the directory is as a disk may have it afterwards

What a file system owes after a power cut is little: the contents of a file that was synced, and the names
in a folder as they were when that was synced. Everything else is up to chance, file by file, and `cut` lets
the seed decide it:

    contents never synced         stay, or are cut, or empty
    a name never synced           stays, or is gone with all below it
    a name that was replaced      is the new file or the old one
    a name that was removed       stays removed, or is back

It is done beside the lake's own code, since most of a lake is not written through a `Store`: `os.fsync` and
`os.sync` are watched, and the damage is done to the files themselves. The lake's contents must not be in
use then.

    python -m headrace_testing.sync_journal <lake> <journal> run --config ...     the command line, watched
"""

from __future__ import annotations

import base64
import json
import os
import random
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

_KEPT_BYTES = 1 << 16  # a file that is larger does not come back once its name was replaced or removed


@dataclass(frozen=True)
class Disk:
    """The directory, and the file in which it is noted what was synced."""

    root: Path
    journal: Path

    @property
    def command(self) -> list[str]:
        """The words after `python -m` for the command line, watched."""
        return ["headrace_testing.sync_journal", str(self.root), str(self.journal)]

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note what this process syncs."""
        fsync, sync = os.fsync, os.sync

        def noted_fsync(descriptor: Any) -> None:
            fsync(descriptor)
            self._note(Path(os.readlink(f"/proc/self/fd/{int(descriptor)}")))

        def noted_sync() -> None:
            sync()
            for path in [self.root, *self.root.rglob("*")]:
                self._note(path)

        with mock.patch("os.fsync", noted_fsync), mock.patch("os.sync", noted_sync):
            yield

    def _note(self, path: Path) -> None:
        if path != self.root and self.root not in path.parents:
            return
        note = _folder_note(path) if path.is_dir() else _file_note(path)
        if note is not None:
            with self.journal.open("ab", buffering=0) as file:
                file.write(json.dumps(note).encode() + b"\n")

    def cut(self, dice: random.Random) -> list[str]:
        """Turn the power off and on again; what was lost, in words."""
        notes = [json.loads(line) for line in self._lines()]
        synced = _Synced()
        for note in notes:
            synced.take(note)
        damage = _Damage(synced, dice, luck=dice.choice((0.0, 0.3, 0.6, 0.9)))
        damage.folder(self.root)
        self.journal.unlink(missing_ok=True)
        for path in [self.root, *self.root.rglob("*")]:  # what is there now is on the disk
            self._note(path)
        return damage.losses

    def _lines(self) -> list[str]:
        return self.journal.read_text().splitlines() if self.journal.exists() else []


def _file_note(path: Path) -> dict[str, Any] | None:
    try:
        state = path.stat()
        small = state.st_size <= _KEPT_BYTES
        kept = base64.b64encode(path.read_bytes()).decode() if small else None
    except FileNotFoundError:
        return None
    return {"file": _identity(state), "size": state.st_size, "kept": kept}


def _folder_note(path: Path) -> dict[str, Any] | None:
    try:
        names = {entry.name: _identity(entry.stat(follow_symlinks=False)) for entry in os.scandir(path)}
    except FileNotFoundError:
        return None
    return {"folder": str(path), "names": names}


def _identity(state: os.stat_result) -> str:
    # A number is given to the next file as soon as the first is gone. Files of a lake are written once.
    return f"{state.st_ino}" if stat.S_ISDIR(state.st_mode) else f"{state.st_ino}.{state.st_mtime_ns}"


@dataclass(slots=True)
class _Synced:
    """The debts of the disk."""

    sizes: dict[str, int] = field(default_factory=dict)
    kept: dict[str, bytes] = field(default_factory=dict)
    names: dict[str, dict[str, str]] = field(default_factory=dict)

    def take(self, note: dict[str, Any]) -> None:
        if "folder" in note:
            self.names[note["folder"]] = note["names"]
            return
        self.sizes[note["file"]] = note["size"]
        if note["kept"] is not None:
            self.kept[note["file"]] = base64.b64decode(note["kept"])


@dataclass(slots=True)
class _Damage:
    """The work of chance on the rest; `luck`: how likely it is that something stays."""

    synced: _Synced
    dice: random.Random
    luck: float
    losses: list[str] = field(default_factory=list)

    def folder(self, folder: Path) -> None:
        owed = self.synced.names.get(str(folder), {})
        there = {entry.name: _identity(entry.stat(follow_symlinks=False)) for entry in os.scandir(folder)}
        for name in sorted(there.keys() | owed.keys()):
            path = folder / name
            if there.get(name) != owed.get(name) and not self._stays():
                self._back(path, owed.get(name))
            if path.is_dir():
                self.folder(path)
            elif path.exists():
                self._file(path)

    def _stays(self) -> bool:
        return self.dice.random() < self.luck

    def _back(self, path: Path, owed: str | None) -> None:
        """The folder's entry is as it was when the folder was synced."""
        kept = None if owed is None else self.synced.kept.get(owed)
        if owed is not None and kept is None:
            return  # a folder, or too large to be had again: what replaced or removed it is on the disk
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        if kept is not None:
            path.write_bytes(kept)
            self.synced.sizes[_identity(path.stat())] = len(kept)
        self.losses.append(f"{path.name}: {'gone' if kept is None else 'as it was'}")

    def _file(self, path: Path) -> None:
        state = path.stat()
        safe = self.synced.sizes.get(_identity(state), 0)
        if safe >= state.st_size or self._stays():
            return
        size = self.dice.choice((safe, safe, self.dice.randint(safe, state.st_size - 1)))
        os.truncate(path, size)
        self.losses.append(f"{path.name}: {size} of {state.st_size} bytes")
