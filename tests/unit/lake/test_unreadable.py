"""A file that can't be read: damaged for good, or kept from us for a moment."""

from __future__ import annotations

import errno
import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.core.errors import Definite, Transient
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows
from headrace.lake.store.bucket import _Reader
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store

ROWS = pa.table({"id": list(range(1000)), "s": [str(i) * 3 for i in range(1000)]})
READS: list[Callable[[LocalStore], object]] = [
    lambda store: datafile.read(store, "t", FileRows("f.parquet")),
    lambda store: datafile.describe(store, "t", FileRows("f.parquet")),
]


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("damage", [slice(4, 400), slice(-8, None), slice(100, None)])
def test_a_damaged_file_is_true_of_its_table(
    tmp_path: Path, read: Callable[[LocalStore], object], damage: slice
) -> None:
    store = LocalStore(str(tmp_path))
    datafile.write(store, "t", "f.parquet", ROWS)
    path = tmp_path / "t/f.parquet"
    data = bytearray(path.read_bytes())
    data[damage] = bytes(len(data[damage])) if damage.start == 4 else b""
    path.write_bytes(data)
    with pytest.raises(Definite) as caught:
        read(store)
    assert caught.value.code == "LAKE_FILE_UNREADABLE"


@dataclass(frozen=True)
class _Failing(LocalStore):
    """A disk that does not answer."""

    def open_input(self, key: str) -> Any:
        return pa.PythonFile(_Silent(), mode="r")


class _Silent(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("read", READS)
def test_a_disk_that_does_not_answer_is_no_damage(
    tmp_path: Path, read: Callable[[LocalStore], object]
) -> None:
    with pytest.raises(Transient) as caught:
        read(_Failing(str(tmp_path)))
    assert caught.value.code == "LAKE_STORE"


class _Broken:
    """Fail as an object store's reader does when the connection is lost: no number, no kind of its own."""

    def read(self, size: int | None) -> bytes:
        raise OSError("error decoding response body")


def test_a_connection_that_breaks_between_two_reads_is_no_damage() -> None:
    broken: Any = _Broken()
    store: Any = open_store("s3://bucket/lake", {"AWS_REGION": "us-east-1"})
    with pytest.raises(Transient) as caught:
        _Reader(store, "t/f.parquet", broken).read(8)
    assert caught.value.code == "LAKE_STORE"
