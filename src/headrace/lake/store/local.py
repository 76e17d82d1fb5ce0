"""A lake in a directory.

`put_if_absent` is a hidden temporary file, made durable, and a hard link, which fails where the name is
taken. `sync` costs milliseconds, which is why it is kept apart. What a program that was ended left of a `put`
is a hidden file, which nobody sees.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from headrace.lake.store.contract import is_left_over, missing, refusals


@dataclass(frozen=True)
class LocalStore:
    """A lake in a directory, on a file system that has hard links."""

    path: str

    @property
    def url(self) -> str:
        return self.path

    @property
    def storage_options(self) -> dict[str, str]:
        return {}

    @property
    def durable_at_once(self) -> bool:
        return False

    def put_if_absent(self, key: str, data: bytes, *, lasting: bool = True) -> bool:
        file = _file(self.path, key)
        absent = [folder for folder in file.parents if lasting and not folder.exists()]
        with refusals(key), _temporary(file, data, durable=lasting) as temporary:
            try:
                os.link(temporary, file)
            except FileExistsError:
                return False
        if not lasting:
            return True
        # What is put so is what others decide by: a power cut must not make it undone.
        _sync_paths({*_folders_of(Path(self.path), file), *(folder.parent for folder in absent)})
        return True

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        with refusals(key), _temporary(_file(self.path, key), data, durable=lasting) as temporary:
            os.replace(temporary, _file(self.path, key))

    def get(self, key: str) -> bytes | None:
        with refusals(key):
            try:
                return _file(self.path, key).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str) -> tuple[str, ...]:
        root = Path(self.path)
        with refusals(prefix):
            found = [
                path.relative_to(root).as_posix()
                for path in (root / prefix).rglob("*")
                if not path.name.startswith(".") and path.is_file()
            ]
        return tuple(sorted(found))

    def folders(self, prefix: str) -> tuple[str, ...]:
        with refusals(prefix):
            try:
                entries = list(os.scandir(_file(self.path, prefix)))
            except FileNotFoundError:
                return ()
        return tuple(sorted(entry.name for entry in entries if entry.is_dir()))

    def delete(self, key: str) -> None:
        with refusals(key):
            _file(self.path, key).unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        with refusals(key):
            return _file(self.path, key).is_file()

    def empty(self) -> bool:
        with refusals(""):
            root = Path(self.path)
            if root.exists() and not root.is_dir():
                return False
            return all(_left_over(path.relative_to(root), path) for path in root.rglob("*"))

    @contextmanager
    def open_output(self, key: str) -> Iterator[IO[bytes]]:
        file = _file(self.path, key)
        with refusals(key):
            file.parent.mkdir(parents=True, exist_ok=True)
            try:
                with file.open("xb") as sink:
                    yield sink
            except FileExistsError:
                raise
            except BaseException:
                file.unlink(missing_ok=True)
                raise

    def open_input(self, key: str) -> Any:
        import pyarrow as pa  # late: whoever reads small records alone loads no Arrow

        with refusals(key):
            try:
                return pa.OSFile(str(_file(self.path, key)))
            except FileNotFoundError as error:
                raise missing(key) from error

    def sync(self, keys: Iterable[str]) -> None:
        files = {_file(self.path, key) for key in keys}
        _sync_paths([*files, *{folder for file in files for folder in _folders_of(Path(self.path), file)}])

    def sync_all(self) -> None:
        # The whole machine's file systems, once at a takeover: nobody knows what the last owner left.
        os.sync()


def _file(root: str, key: str) -> Path:
    return Path(root) / key


def sizes(store: LocalStore, prefix: str) -> list[int]:
    """The sizes of the files below the folder `prefix`."""
    with refusals(prefix):
        return list(_sizes(_file(store.path, prefix)))


def _sizes(folder: Path) -> Iterator[int]:
    """The sizes of the files below a folder; those that are deleted meanwhile are left out."""
    try:
        entries = list(os.scandir(folder))
    except FileNotFoundError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from _sizes(Path(entry.path))
            continue
        with suppress(FileNotFoundError):
            yield entry.stat(follow_symlinks=False).st_size


@contextmanager
def _temporary(target: Path, data: bytes, *, durable: bool) -> Iterator[Path]:
    """A hidden file beside `target` that holds `data`; gone afterwards unless it was renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.parent / f".{uuid.uuid4().hex}.tmp"
    try:
        with temporary.open("xb") as sink:
            sink.write(data)
            if durable:
                sink.flush()
                os.fsync(sink.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _left_over(name: Path, path: Path) -> bool:
    """Tell whether a program that was ended while it made a lake may have left this."""
    if path.is_dir():
        return name.parts == ("_headrace",)
    return is_left_over(name.as_posix())


def _folders_of(root: Path, file: Path) -> Iterator[Path]:
    """The folders above a file, up to the lake's own."""
    for folder in file.parents:
        yield folder
        if folder == root:
            return


def _sync_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        with refusals(path.name):
            if path in _REFUSED and path.is_file():
                _write_anew(path)
            try:
                _sync(path)
            except OSError:
                _REFUSED.add(path)
                raise
            _REFUSED.discard(path)


# Files that the disk refused to take. The system tells so once, and takes what was lost for clean from then
# on: to sync such a file again proves nothing.
_REFUSED: set[Path] = set()


def _write_anew(path: Path) -> None:
    """Write the bytes to a new file under the same name; all but the folder's entry is durable."""
    with _temporary(path, path.read_bytes(), durable=True) as temporary:
        os.replace(temporary, path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
