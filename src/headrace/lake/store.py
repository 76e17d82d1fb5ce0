"""Where a lake lives: bytes under keys, the same on a local directory and on an object store.

Everything in the lake that is not a Delta log is read and written through a `Store`; delta-rs gets the
store's `url` and `storage_options` for the rest. Keys are relative to the lake and use `/`.

What the commit protocol rests on is one operation, `put_if_absent`: of any number of writers that try to
create a key exactly one is told True, and nobody ever reads half of what it wrote. On a directory that is
a hidden temporary file, made durable, and a hard link (`link` fails where the name is taken); on S3 it is
a conditional put (`headrace.lake.s3store`).

    put_if_absent   True to one writer; durable when it returns, with the folder's own entry
    put             whole or not at all, after a power cut too; the last writer wins; not durable by itself
    sync            makes the named files and the folders above them durable

`sync` is kept apart since it costs milliseconds that only the acknowledgement has to wait for. What a
program that was ended left of a `put` is a hidden file, which nobody sees. Deleting what is absent is not
an error. A store never looks into what it holds and never shows its options: they may be credentials.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

import pyarrow as pa

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient


class Store(Protocol):
    """Bytes under keys; see the module's essay for what each method promises."""

    @property
    def url(self) -> str:
        """The lake as delta-rs, DuckDB and Polars open it."""

    @property
    def storage_options(self) -> dict[str, str]:
        """What delta-rs and Polars need to open `url`; may hold credentials."""

    @property
    def durable_at_once(self) -> bool:
        """Whether everything that was written, by whomever, would survive a power cut now."""

    def put_if_absent(self, key: str, data: bytes) -> bool: ...

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        """Replace what is stored under `key`; where it is not `lasting` a power cut may leave half of it."""

    def get(self, key: str) -> bytes | None:
        """What is stored under `key`, or None where nothing is."""

    def list(self, prefix: str) -> tuple[str, ...]:
        """The keys below the folder `prefix`, at any depth, in order."""

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders directly below the folder `prefix`, in order."""

    def delete(self, key: str) -> None: ...

    def exists(self, key: str) -> bool: ...

    def empty(self) -> bool:
        """True if there is nothing but, perhaps, what a lake that came to nothing left."""

    def open_output(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """A sink for one new object; nothing is left under `key` if the body raises."""

    def open_input(self, key: str) -> Any:
        """Something that pyarrow reads with random access."""

    def sync(self, keys: Iterable[str]) -> None: ...

    def sync_all(self) -> None:
        """Make everything durable that anybody has written into the lake."""

    def locate(self, key: str) -> str:
        """The key's own address, for readers that take lists of files."""


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

    def locate(self, key: str) -> str:
        return f"{self.path}/{key}"

    def put_if_absent(self, key: str, data: bytes) -> bool:
        absent = [folder for folder in self._file(key).parents if not folder.exists()]
        with told(key), _temporary(self._file(key), data, durable=True) as temporary:
            try:
                os.link(temporary, self._file(key))
            except FileExistsError:
                return False
        # What is put so is what others decide by: a power cut must not make it undone.
        _sync_paths({*_folders_of(Path(self.path), self._file(key)), *(folder.parent for folder in absent)})
        return True

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        with told(key), _temporary(self._file(key), data, durable=lasting) as temporary:
            os.replace(temporary, self._file(key))

    def get(self, key: str) -> bytes | None:
        with told(key):
            try:
                return self._file(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None

    def list(self, prefix: str) -> tuple[str, ...]:
        root = Path(self.path)
        with told(prefix):
            found = [
                path.relative_to(root).as_posix()
                for path in (root / prefix).rglob("*")
                if not path.name.startswith(".") and path.is_file()
            ]
        return tuple(sorted(found))

    def folders(self, prefix: str) -> tuple[str, ...]:
        with told(prefix):
            try:
                entries = list(os.scandir(self._file(prefix)))
            except FileNotFoundError:
                return ()
        return tuple(sorted(entry.name for entry in entries if entry.is_dir()))

    def delete(self, key: str) -> None:
        with told(key):
            self._file(key).unlink(missing_ok=True)

    def exists(self, key: str) -> bool:
        with told(key):
            return self._file(key).is_file()

    def empty(self) -> bool:
        with told(""):
            root = Path(self.path)
            if root.exists() and not root.is_dir():
                return False
            return all(_left_over(path.relative_to(root), path) for path in root.rglob("*"))

    @contextmanager
    def open_output(self, key: str) -> Iterator[IO[bytes]]:
        file = self._file(key)
        with told(key):
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
        with told(key):
            try:
                return pa.OSFile(str(self._file(key)))
            except FileNotFoundError as error:
                raise missing(key) from error

    def sync(self, keys: Iterable[str]) -> None:
        files = {self._file(key) for key in keys}
        _sync_paths([*files, *{folder for file in files for folder in _folders_of(Path(self.path), file)}])

    def sync_all(self) -> None:
        # The whole machine's file systems, once at a takeover: nobody knows what the last owner left.
        os.sync()

    def _file(self, key: str) -> Path:
        return Path(self.path) / key


def open_store(where: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at a directory, a `file:` URL or an `s3:` URL; opening it touches nothing."""
    text = os.fspath(where)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("s3", "s3a"):
        # Imported late: obstore comes with the extra `s3` only.
        from headrace.lake.s3store import open_s3

        return open_s3(rest, dict(storage_options or {}))
    if separator and scheme != "file":
        raise Misconfigured(
            "LAKE_URL",
            f'a lake cannot be kept at a "{scheme}" address',
            hint="give a directory or an s3://bucket/prefix",
        )
    path = os.path.abspath(rest if separator else os.path.expanduser(text))
    if "%" in path:
        # delta-rs decodes the path of a table a second time when it reads the log.
        raise Misconfigured(
            "LAKE_URL",
            "the path of a lake cannot contain a percent sign",
            hint="choose a directory without it",
        )
    return LocalStore(path)


def missing(key: str) -> Definite:
    """The error for a file that a log names and the store does not have."""
    return Definite(
        "LAKE_FILE_MISSING",
        f'the lake\'s file "{key}" is gone',
        hint="after a power cut headrace run mends the lake; else restore it from a backup of the lake, "
        "or mirror into a new lake",
    )


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
    """Whether a program that was ended while it made a lake may have left this."""
    if path.is_dir():
        return name.parts == ("_headrace",)
    return name.parent.parts == ("_headrace",) and name.name.startswith(".") and name.suffix == ".tmp"


def _folders_of(root: Path, file: Path) -> Iterator[Path]:
    """The folders above a file, up to the lake's own."""
    return (folder for folder in file.parents if folder == root or root in folder.parents)


def _sync_paths(paths: Iterable[Path]) -> None:
    for path in paths:
        with told(path.name):
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
    """The same bytes in a new file under the same name, durable but for the folder's entry."""
    with _temporary(path, path.read_bytes(), durable=True) as temporary:
        os.replace(temporary, path)


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def told(key: str) -> Iterator[None]:
    """What the operating system refuses, as one of the families."""
    try:
        yield
    except HeadraceError:
        raise
    except PermissionError as error:
        raise Misconfigured(
            "LAKE_DENIED",
            f'the lake\'s file "{key}" may not be used by this user',
            detail=error.strerror,
            hint="give the user that runs headrace read and write access to the whole lake",
        ) from error
    except OSError as error:
        raise Transient(
            "LAKE_STORE",
            f'the lake\'s file "{key}" could not be read or written',
            detail=error.strerror or type(error).__name__,
            hint="look at the disk's space and health; the work resumes by itself",
        ) from error
