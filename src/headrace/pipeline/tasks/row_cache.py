"""Rows of data files on this machine's disk, so that a merge finds a key without reading a whole file.

    a data file ─► one entry:  header │ prefixes of key codes │ rows, uncompressed, in the order of their keys
                                  │              │                   │
                          version, checksum   searched        mapped into memory

Data files never change, so an entry is valid for as long as it stands. It is a cache, and no answer needs it:
an entry that is missing, damaged, of another version or of other columns is made anew from the data file.
Entries lie in the temporary folder of whoever merges, never in the lake, and only their owner can read them.

An entry goes when its file has left the table (`forget_rows`). The folder keeps to a bound of bytes: an entry
makes room for another only if nobody has used it for a while; else the new one lives in memory alone, for one
merge. So a bound that is too small keeps what it can, and nothing is written over and over.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Ints
from headrace.core.errors import HeadraceError
from headrace.core.keycode import keycode
from headrace.pipeline.tasks.files import are_ascending
from headrace.pipeline.tasks.routing import WIDTH, Prefixes, prefixes
from headrace.spool.private import private_folder

_MAGIC = b"HRROWS01"
_HEADER = 4096  # bytes of the header, where the rest begins
_BLOCK = 1 << 16
_AT_ONCE = 1 << 20  # bytes that are checked at once: more would have to be mapped anew each time
_LONGEST_COMMON = 1024
_OPEN_AT_ONCE = 512
_SMALL = 1 << 20  # bytes: rows that take less are held in memory, so many bytes of them at most
_SMALL_AT_ONCE = 64 << 20
_IDLE_SECONDS = 600.0  # an entry that was used since then makes no room for another
_FORGOTTEN_SECONDS = 86_400.0
_NOTED_SECONDS = 60.0  # a use is noted so often


@dataclass(frozen=True, slots=True)
class Matches:
    """Rows under some keys: row `numbers[i]` has key `keys[i]` and is at `positions[i]` of its data file."""

    keys: Ints
    numbers: Ints
    positions: Ints


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """All rows that stand in one data file, in the order of their keys."""

    key: tuple[str, ...]
    rows: pa.Table  # one chunk a column
    common: bytes  # all codes begin with these bytes
    prefixes: Prefixes  # of what follows them
    order: Ints | None  # the position of each row in the data file; None: as they stand here

    @classmethod
    def of(cls, rows: pa.Table, key: Sequence[str]) -> KeyedRows:
        """Put the rows of a data file, in its own order, into the order of their keys."""
        rows, order = rows.combine_chunks(), None
        codes = keycode([rows.column(name) for name in key])
        if not are_ascending(rows, key, codes):  # another program wrote the file
            order = pl.Series(codes).arg_sort().to_numpy().astype(np.int64)
            rows, codes = rows.take(pa.array(order)).combine_chunks(), codes.take(pa.array(order))
        common = _common_start(codes[0].as_py(), codes[-1].as_py()) if len(codes) else b""
        longest = max(1, (pc.max(pc.binary_length(codes)).as_py() or 0) - len(common))
        return cls(tuple(key), rows, common, prefixes(codes, min(WIDTH, longest), len(common)), order)

    @property
    def size(self) -> int:
        """The bytes that it takes."""
        found: int = self.rows.nbytes + self.prefixes.nbytes
        return found

    def find(self, codes: pa.Array) -> Matches:
        """Find the rows under these key codes; none, one, or more of each."""
        wanted = np.arange(len(codes), dtype=np.int64)
        if self.common:
            wanted = np.flatnonzero(pc.starts_with(codes, pattern=self.common).to_numpy(zero_copy_only=False))
            codes = codes.take(pa.array(wanted))
        begins = prefixes(codes, self.prefixes.dtype.itemsize, len(self.common))
        low = np.searchsorted(self.prefixes, begins, side="left")
        high = np.searchsorted(self.prefixes, begins, side="right")
        there = np.flatnonzero(low < high)
        wanted, codes = wanted[there], pl.Series(codes.take(pa.array(there)))
        low, high = self._first_at_least(codes, low[there], high[there]), high[there]
        keys, numbers = [], []
        while len(low):
            same = np.flatnonzero(low < high)
            same = same[(self._series(low[same]) == codes.gather(same)).to_numpy()]
            keys.append(wanted[same])
            numbers.append(low[same])
            wanted, codes, low, high = wanted[same], codes.gather(same), low[same] + 1, high[same]
        found = np.concatenate([np.empty(0, np.int64), *numbers])
        return Matches(np.concatenate([np.empty(0, np.int64), *keys]), found, self.positions(found))

    def _first_at_least(self, codes: pl.Series, low: Ints, high: Ints) -> Ints:
        """Find between these bounds the first row of each key or of a greater one."""
        low, high = low.copy(), high.copy()
        open_ = np.flatnonzero(high - low > 1)
        while len(open_):
            middle = (low[open_] + high[open_]) // 2
            less = (self._series(middle) < codes.gather(open_)).to_numpy()
            low[open_[less]] = middle[less] + 1
            high[open_[~less]] = middle[~less]
            open_ = open_[high[open_] > low[open_]]
        return low

    def codes(self, numbers: Ints) -> pa.Array:
        """The key codes of some rows."""
        at = pa.array(numbers)
        return keycode([self.rows.column(name).take(at) for name in self.key])

    def _series(self, numbers: Ints) -> pl.Series:
        return pl.Series(self.codes(numbers))

    def between(self, first: bytes, last: bytes) -> range:
        """The rows whose keys lie from `first` to `last`, as `routing` compares them: cut to `WIDTH`."""
        if not self.rows.num_rows:
            return range(0)
        return range(self._bound(first, beyond=False), self._bound(last, beyond=True))

    def _bound(self, code: bytes, *, beyond: bool) -> int:
        """The first row whose code, cut to `WIDTH`, is at least this one; or greater."""
        low, high, cut = 0, self.rows.num_rows, code.rstrip(b"\0")
        while low < high:
            middle = (low + high) // 2
            here = self._series(np.array([middle])).to_list()[0][:WIDTH].rstrip(b"\0")
            if here < cut or (beyond and here == cut):
                low = middle + 1
            else:
                high = middle
        return low

    def take(self, numbers: Ints) -> pa.Table:
        """The rows themselves."""
        return self.rows.take(pa.array(numbers))

    def positions(self, numbers: Ints) -> Ints:
        """Find the positions of these rows in the data file."""
        return numbers if self.order is None else self.order[numbers]

    def numbers(self, positions: Ints) -> Ints:
        """Find the rows at these positions of the data file."""
        if self.order is None:
            return positions
        back = np.empty(len(self.order), np.int64)
        back[self.order] = np.arange(len(self.order))
        found: Ints = back[positions]
        return found


def _common_start(first: bytes, last: bytes) -> bytes:
    """The bytes with which both begin, and all codes between them."""
    pairs = zip(first, last, strict=False)
    length = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(first), len(last)))
    return first[: min(length, _LONGEST_COMMON)]


# --- entries on the disk ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DataFileName:
    """A data file, and as what its rows are read: what an entry is of."""

    lake: str
    folder: str
    path: str
    schema: pa.Schema
    key: tuple[str, ...]

    @property
    def entry(self) -> str:
        """The name of its entry."""
        return entry_name(self.lake, self.folder, self.path)

    @property
    def columns(self) -> str:
        """Tell the columns apart from others under the same names."""
        of_schema = self.schema.remove_metadata().serialize().to_pybytes()
        return hashlib.sha256(of_schema + json.dumps(self.key).encode()).hexdigest()


def entry_name(lake: str, folder: str, path: str) -> str:
    """The name of a data file's entry."""
    return hashlib.sha256("\0".join((lake, folder, path)).encode()).hexdigest() + ".rows"


def write_entry(path: Path, name: DataFileName, rows: KeyedRows) -> None:
    """Write an entry, whole or not at all."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, suffix=".new")
    try:
        with os.fdopen(handle, "w+b") as file:
            file.seek(_HEADER)
            parts = {"prefixes": _append(file, rows.prefixes)}
            if rows.order is not None:
                parts["order"] = _append(file, rows.order)
            parts["rows"] = _append_rows(file, rows.rows)
            file.flush()
            said = {
                "columns": name.columns,
                "shared": rows.common.hex(),
                "width": rows.prefixes.dtype.itemsize,
                "parts": parts,
                "size": file.tell(),
                "sum": _sum(file),
            }
            header = json.dumps(said).encode()
            file.seek(0)
            file.write(
                _MAGIC + len(header).to_bytes(4, "big") + zlib.crc32(header).to_bytes(4, "big") + header
            )
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def read_entry(path: Path, name: DataFileName, *, check: bool = True) -> KeyedRows | None:
    """Open an entry; None if there is none that can be used.

    Without `check` damage is not looked for, which would read all of it: this process has just written it.
    """
    try:
        with path.open("rb") as file:
            said = _read_header(file)
            if (
                said is None
                or said["columns"] != name.columns
                or said["size"] != os.fstat(file.fileno()).st_size
            ):
                return None
            if check and _sum(file) != said["sum"]:
                return None
        whole = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError):
        return None
    kinds = {"prefixes": f"S{said['width']}", "order": "<i8"}
    parts = {kind: _part(whole, said["parts"], kind, dtype) for kind, dtype in kinds.items()}
    begin, size = said["parts"]["rows"]
    rows = pa.ipc.open_file(pa.py_buffer(whole[begin : begin + size])).read_all()
    prefixes_ = parts["prefixes"]
    assert prefixes_ is not None
    return KeyedRows(name.key, rows, bytes.fromhex(said["shared"]), prefixes_, parts["order"])


def _part(whole: Any, parts: Mapping[str, Sequence[int]], kind: str, dtype: str) -> Any:
    if kind not in parts:
        return None
    begin, size = parts[kind]
    return whole[begin : begin + size].view(dtype)


def _append(file: IO[bytes], data: np.ndarray[Any, Any]) -> tuple[int, int]:
    begin = -(-file.tell() // 64) * 64
    file.seek(begin)
    file.write(data.view(np.uint8).data)
    return begin, data.nbytes


def _append_rows(file: IO[bytes], rows: pa.Table) -> tuple[int, int]:
    begin = -(-file.tell() // 64) * 64
    file.seek(begin)
    with pa.ipc.new_file(pa.PythonFile(file, "w"), rows.schema) as writer:
        writer.write_table(rows)
    return begin, file.tell() - begin


def _read_header(file: IO[bytes]) -> dict[str, Any] | None:
    start = file.read(_HEADER)
    size, checksum = (int.from_bytes(start[at : at + 4], "big") for at in (8, 12))
    header = start[16 : 16 + size]
    if start[:8] != _MAGIC or len(header) != size or zlib.crc32(header) != checksum:
        return None
    said: dict[str, Any] = json.loads(header)
    return said


def _sum(file: IO[bytes]) -> int:
    """A checksum of all behind the header, at the speed of memory."""
    file.seek(_HEADER)
    buffer, found = np.empty(_AT_ONCE, np.uint8), 0
    while length := file.readinto(buffer.data):  # type: ignore[attr-defined]
        end = -(-length // _BLOCK) * _BLOCK
        buffer[length:end] = 0
        words = buffer[:end].view(np.uint64).reshape(-1, _BLOCK // 8)
        found = zlib.crc32(np.add.reduce(words, axis=1, dtype=np.uint64).tobytes(), found)
    return found


# --- the folder -------------------------------------------------------------------------------


class RowCache:
    """The entries in one folder. Threads may share it, and so may the processes of a machine."""

    def __init__(self, folder: Path, most: int) -> None:
        self.folder = folder
        self.most = most  # bytes
        self._open: OrderedDict[str, tuple[KeyedRows, str, float]] = OrderedDict()
        self._small: OrderedDict[str, tuple[KeyedRows, str]] = OrderedDict()
        self._small_bytes = 0
        self._lock = threading.Lock()

    def get(self, name: DataFileName) -> KeyedRows | None:
        """The rows of a data file, if there is an entry of it."""
        with self._lock:
            small = self._small.get(name.entry)
            if small is not None and small[1] == name.columns:
                self._small.move_to_end(name.entry)
                return small[0]
            known = self._open.get(name.entry)
            if known is not None and known[1] == name.columns:
                self._note_use(name, *known)
                return known[0]
        found = read_entry(self.folder / name.entry, name)
        if found is not None:
            self._remember(name, found)
        return found

    def put(self, name: DataFileName, rows: KeyedRows) -> KeyedRows:
        """Make an entry if there is room for it; return the rows as they are used from now on."""
        size = _HEADER + rows.size
        if rows.size < min(_SMALL, self.most):
            self._hold(name, rows)
            return rows
        try:
            if not self._make_room(size):
                return rows
            write_entry(self.folder / name.entry, name, rows)
        except OSError:  # the disk is full, or somebody has tidied up
            return rows
        found = read_entry(self.folder / name.entry, name, check=False)
        if found is None:
            return rows
        self._remember(name, found)
        return found

    def forget(self, entry: str) -> None:
        """Remove the entry of a data file that no merge will read again."""
        with self._lock:
            self._open.pop(entry, None)
            if (small := self._small.pop(entry, None)) is not None:
                self._small_bytes -= small[0].size
        with suppress(OSError):
            (self.folder / entry).unlink()

    def _hold(self, name: DataFileName, rows: KeyedRows) -> None:
        with self._lock:
            if (before := self._small.pop(name.entry, None)) is not None:
                self._small_bytes -= before[0].size
            self._small[name.entry] = rows, name.columns
            self._small_bytes += rows.size
            while self._small_bytes > _SMALL_AT_ONCE:
                self._small_bytes -= self._small.popitem(last=False)[1][0].size

    def _remember(self, name: DataFileName, rows: KeyedRows) -> None:
        with self._lock:
            self._note_use(name, rows, name.columns, 0.0)
            while len(self._open) > _OPEN_AT_ONCE:
                self._open.popitem(last=False)

    def _note_use(self, name: DataFileName, rows: KeyedRows, columns: str, noted: float) -> None:
        now = time.monotonic()
        if now - noted > _NOTED_SECONDS or not noted:
            with suppress(OSError):
                os.utime(self.folder / name.entry)
            noted = now
        self._open[name.entry] = (rows, columns, noted)
        self._open.move_to_end(name.entry)

    def _make_room(self, size: int) -> bool:
        """Remove entries that nobody uses until there is room for so many bytes; False if there is none."""
        entries = sorted(self._entries(), key=lambda entry: entry[1].st_mtime)
        used, now = sum(each.st_size for _, each in entries), time.time()
        free = os.statvfs(self.folder)
        most = min(self.most, used + free.f_bavail * free.f_frsize // 2)
        for path, each in entries:
            idle = now - each.st_mtime
            if idle > _FORGOTTEN_SECONDS or (used + size > most and idle > _IDLE_SECONDS):
                path.unlink(missing_ok=True)
                used -= each.st_size
        return used + size <= most

    def _entries(self) -> Iterator[tuple[Path, os.stat_result]]:
        for path in self.folder.iterdir():
            with suppress(FileNotFoundError):
                yield path, path.stat()


_CACHES: dict[tuple[str, int], RowCache] = {}


def cache_of(most: int) -> RowCache | None:
    """The cache of this process, in the machine's temporary folder; None if there can't be one."""
    if most <= 0:
        return None
    place = _place()
    known = _CACHES.get((str(place), most))
    if known is None or not place.is_dir():
        try:
            known = RowCache(private_folder(place), most)
        except HeadraceError:
            return None  # another user has made it: without a cache every answer is the same
        _CACHES[str(place), most] = known
    return known


def forget_rows(lake: str, folder: str, paths: Collection[str], most: int) -> None:
    """Remove the entries of files that have left a table from the cache of this machine, if it has one."""
    if paths and _place().is_dir() and (cache := cache_of(most)) is not None:
        for path in paths:
            cache.forget(entry_name(lake, folder, path))


def _place() -> Path:
    return Path(tempfile.gettempdir()) / f"headrace-rows-{os.geteuid()}"
