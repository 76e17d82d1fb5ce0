"""Files of the lake as DataFrames of somebody's Spark session.

    a directory                        Spark's own Parquet reader
    a bucket, and Spark can read it    the same: only the columns and rows that a query needs are fetched
    files with deleted rows            without them, by their positions
    a bucket, and Spark has no file    tasks, which read the files through our own store, as every job of
    system for it (pip's Spark)        ours does: whole files, whatever the query needs of them

Which of the two it is, is asked of Spark with the first file. The store's options, which may hold
credentials, travel to tasks as a part of the function: Spark shows functions nowhere, neither in a plan nor
in an event log.

Spark is used only through the session that is handed in; this room does not import it.
"""

from __future__ import annotations

import os
import posixpath
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.core.columns import Ints
from headrace.lake.format import datafile, schemas
from headrace.lake.format.vector import FileRows, damaged_error, deleted_rows
from headrace.lake.store.contract import Store, locate
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store

# How Hadoop says that it has no file system for an address.
_NO_FILE_SYSTEM = ("ClassNotFoundException", "NoClassDefFoundError", "No FileSystem for scheme")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.\-]+\Z")
_MOST_ROWS = 1 << 31  # of a file
_GLOB = re.compile(r"([\\{}\[\]*?])")

# So many rows go to the JVM at a time, and so many tasks at most read one list of files.
_ROWS = 8192
_TASKS = 512

_exchange = threading.Lock()


@dataclass
class Frames:
    """One store's files in one session."""

    spark: Any
    store: Store
    _plain: bool | None = field(default=None, init=False)

    def parquet(self, files: Sequence[FileRows], schema: pa.Schema) -> Any:
        """The rows of the files (at least one), with exactly the schema's columns as the user names them.

        A file's path is its key in the store.
        """
        ddl = schemas.spark_ddl(schemas.to_lake(schema))
        if self._plain is None:
            self._plain = isinstance(self.store, LocalStore) or self._is_readable(files[0].path, ddl)
        if not self._plain or not _has_positions(files, schema):
            return self._in_tasks(tuple(files), schema).toDF(*schema.names)
        rows = self.spark.read.schema(ddl).parquet(*(self._address(file.path) for file in files))
        if any(file.vector and file.vector.rows for file in files):
            rows = self._without_deleted(rows, files, len(schema))
        return rows.toDF(*schema.names)

    def _without_deleted(self, rows: Any, files: Sequence[FileRows], width: int) -> Any:
        """The rows that are not deleted. Files go by their names: Spark spells an address in its own way.

        One value for the whole query holds a bit for each row up to a file's last deleted one. A join would
        broadcast the places first, and hash that of each row. A row of another file has no bit, and stays.
        """
        columns = [f"c{at}" for at in range(width)]
        deleted = {file.path: deleted_rows("", file) for file in files}
        # The file with the most rows comes first: its name is compared most often.
        worn = sorted((path for path in deleted if len(deleted[path])), key=lambda path: -deleted[path][-1])
        names = [posixpath.basename(path) for path in worn]  # `_has_positions` knows their characters
        whens = " ".join(f"WHEN '{name}' THEN {number}" for number, name in enumerate(names))
        bits = pa.table({"bits": [[_bits(path, deleted[path]) for path in worn]]})
        placed = rows.selectExpr("*", f"CASE _metadata.file_name {whens} END", "_metadata.row_index")
        placed = placed.toDF(*columns, "file", "place")
        placed = placed.select("*", self.spark.createDataFrame(bits).scalar().alias("bits"))
        word = "get(get(bits, file), CAST(shiftright(place, 6) AS INT))"
        bit = f"shiftright({word}, CAST(place & 63 AS INT)) & 1"
        return placed.where(f"coalesce({bit}, 0) = 0").select(*columns)

    def _is_readable(self, key: str, ddl: str) -> bool:
        """Tell whether Spark has a file system on which the file is."""
        try:
            # On Connect nothing is looked at before somebody asks.
            _ = self.spark.read.schema(ddl).parquet(self._address(key)).columns
        except Exception as error:
            # The classes of Spark's errors are unknown here.
            if any(word in str(error) for word in _NO_FILE_SYSTEM):
                return False
            raise
        return True

    def _address(self, key: str) -> str:
        """Hadoop's spelling: S3 is s3a there, a bare path would mean the default file system, and what looks
        like a pattern is one."""
        url = locate(self.store, key)
        if isinstance(self.store, LocalStore):
            url = f"file://{url}"
        elif url.startswith("s3:"):
            url = "s3a" + url[2:]
        return _GLOB.sub(r"\\\1", url)

    def _in_tasks(self, files: tuple[FileRows, ...], schema: pa.Schema) -> Any:
        # Columns by number: Spark looks them up by name here, and takes a dot in one for a path.
        numbered = pa.schema([column.with_name(f"c{at}") for at, column in enumerate(schema)])
        options = tuple(self.store.storage_options.items())
        task = partial(_read, self.store.url, options, files, schemas.encode(schema))
        numbers = self.spark.range(0, len(files), 1, min(len(files), _TASKS))
        with own_python(self.spark):
            return numbers.mapInArrow(task, schemas.spark_ddl(numbered))


def _read(
    url: str,
    options: tuple[tuple[str, str], ...],
    files: tuple[FileRows, ...],
    schema: str,
    numbers: Iterator[Any],
) -> Iterator[Any]:
    """Runs in a worker: the numbers of files to their rows."""
    store, wanted = open_store(url, dict(options)), schemas.decode(schema)
    names = [f"c{at}" for at in range(len(wanted))]
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            folder, _, path = files[number].path.rpartition("/")
            for rows in datafile.stream(store, folder, replace(files[number], path=path), wanted):
                yield from rows.rename_columns(names).to_batches(max_chunksize=_ROWS)


def _bits(path: str, positions: Ints) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A bit for each row of a file, up to the last that is deleted, in words of 64."""
    if positions[-1] >= _MOST_ROWS:
        raise damaged_error(path, f"it deletes row {positions[-1]}, and no file has so many")
    words = np.zeros(int(positions[-1] >> 6) + 1, np.uint64)
    np.bitwise_or.at(words, positions >> 6, np.uint64(1) << (positions & 63).astype(np.uint64))
    return words.view(np.int64)


def _has_positions(files: Sequence[FileRows], schema: pa.Schema) -> bool:
    """Tell whether Spark can tell the place of each row of the files that have deleted rows."""
    if not any(file.vector for file in files):
        return True
    hidden = any(name.lower() == "_metadata" for name in schema.names)
    return not hidden and all(_PLAIN_NAME.match(posixpath.basename(file.path)) for file in files)


@contextmanager
def own_python(spark: Any) -> Iterator[None]:
    """Functions that are handed to this session meanwhile run in this very Python, if nobody said in which.

    PySpark takes the `python3` of PATH otherwise, which need not be the environment that its user runs. That
    is decided as the function is handed over. A session elsewhere is left alone: its machines have their own.
    """
    context = getattr(spark, "sparkContext", None)
    if context is None or not _is_undecided(context):
        yield
        return
    with _exchange:
        before, context.pythonExec = context.pythonExec, sys.executable
        try:
            yield
        finally:
            context.pythonExec = before


def _is_undecided(context: Any) -> bool:
    said = os.environ.get("PYSPARK_PYTHON") or context.getConf().get("spark.pyspark.python", None)
    return said is None and str(context.master).startswith("local") and context.pythonExec == "python3"
