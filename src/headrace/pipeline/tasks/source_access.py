"""A task's access to the source: a value in an item, and a reader where the task runs.

The address travels sealed; the key comes another way (`spark.secrets`). A `SourceDoor` stays in the driver:
it seals the password as it is when a job begins. The key of hashes (`core.hashing`) goes the same way.

    source ─► its reader: values as they are ─► `HashingReader`: hashes in their place ─► files, checksums

Values of hashed columns are in a task's memory alone. Whoever reads without the key gets none of them: no
reader knows the form of a hashed column.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import TypeVar

import numpy as np
import pyarrow as pa

from headrace.core.hashing import HashKey
from headrace.core.schema import Column, TableSchema
from headrace.decode.copyrows import CopiedRows
from headrace.sources import registry
from headrace.sources.contract.copying import Key as KeyTexts
from headrace.sources.contract.copying import Piece, PieceRead, Reader
from headrace.sources.contract.decoder import Decoder
from headrace.sources.contract.mirror import Address
from headrace.sources.contract.values import Json
from headrace.sources.shared.refusals import LoginWithheld
from headrace.spark.secrets import Key, SealedSecret, seal

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SourceAccess:
    """The source of a task: its kind, its address, which server it has to be, and what may be read there."""

    kind: str
    identity: Json
    address: SealedSecret  # with the key of hashes
    ticket: Json
    role: str

    def reader(self, key: Key) -> Reader:
        """A reader; it connects when it is first asked for something."""
        source = registry.by_kind(self.kind)
        address, hash_key = json.loads(self.address.open(key))
        reader = source.reader(source.address(address), self.identity, self.ticket, role=self.role)
        return HashingReader(reader, HashKey(hash_key), source.decoder()) if hash_key else reader


@dataclass(frozen=True, slots=True)
class SourceDoor:
    """The driver's end: gives jobs access to the source by one ticket."""

    kind: str
    identity: Json
    address: Address
    ticket: Json
    role: str
    hash_key: HashKey | None = None  # if a rule of columns hashes values

    def run(self, job: Callable[[SourceAccess, Key], T]) -> T:
        """Run a job with the password of now; once more if another one has come into force meanwhile."""
        text = self.address.text
        try:
            return self._run(job, text)
        except LoginWithheld:
            later = self.address.text
            if later == text:
                raise
            return self._run(job, later)

    def _run(self, job: Callable[[SourceAccess, Key], T], text: str) -> T:
        sealed, key = seal(json.dumps([text, self.hash_key.text if self.hash_key else ""]))
        return job(SourceAccess(self.kind, self.identity, sealed, self.ticket, self.role), key)


@dataclass(frozen=True, slots=True)
class HashingReader:
    """A reader that puts hashes in the place of values of hashed columns."""

    inner: Reader
    key: HashKey = field(repr=False)
    decoder: Decoder

    def __enter__(self) -> HashingReader:
        self.inner.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.inner.__exit__(kind, error, trace)

    @contextmanager
    def read(
        self, columns: Sequence[Column], piece: Piece, record: Json | None = None
    ) -> Iterator[PieceRead]:
        """Read these columns of a piece."""
        with self.inner.read([column.clear for column in columns], piece, record) as reading:
            yield PieceRead(reading.handoff, (self._hash_columns(copied, columns) for copied in reading.rows))

    def look_up(
        self, schema: TableSchema, pieces: Sequence[Piece], keys: Sequence[KeyTexts]
    ) -> Generator[tuple[int, pa.Table], None, None]:
        """Find the rows with these keys; no index has hashes, so for hashes of a key read all pieces."""
        if not any(_is_read_to_find(column, schema.key) for column in schema.columns):
            clear = replace(schema, columns=tuple(column.clear for column in schema.columns))
            with closing(self.inner.look_up(clear, pieces, keys)) as found:
                for number, rows in found:
                    yield number, self._hash_columns(CopiedRows(rows, ()), schema.columns).rows
            return
        wanted = set(keys)
        for number, piece in enumerate(pieces):
            with self.read(schema.columns, piece) as reading:
                for copied in reading.rows:
                    chosen = np.array([key in wanted for key in self._keys(schema, copied.rows)], np.bool_)
                    if chosen.any():
                        yield number, copied.rows.filter(pa.array(chosen))

    def _keys(self, schema: TableSchema, rows: pa.Table) -> Iterator[KeyTexts]:
        columns = (self._texts(rows.column(name)) for name in schema.key)
        return zip(*columns, strict=True)

    def _texts(self, values: pa.ChunkedArray) -> list[str | None]:
        found: list[str | None] = self.decoder.print_values(values.combine_chunks()).to_pylist()
        return found

    def _hash_columns(self, copied: CopiedRows, columns: Sequence[Column]) -> CopiedRows:
        rows = copied.rows
        without_form = {values.column: values for values in copied.unrepresentable}
        for number, column in enumerate(columns):
            if column.clear_type is None:
                continue
            texts = self._texts(rows.column(number))
            if (values := without_form.pop(number, None)) is not None:
                for row, text in zip(values.rows.tolist(), values.texts.to_pylist(), strict=True):
                    texts[row] = text
            hashes = [None if text is None else self.key.hash(text.encode()) for text in texts]
            hashed = pa.field(column.name, column.type, nullable=column.nullable)
            rows = rows.set_column(number, hashed, pa.array(hashes, column.type))
        return CopiedRows(rows, tuple(without_form.values()))


def _is_read_to_find(column: Column, key: Sequence[str]) -> bool:
    """Tell whether a lookup by an index can't bring hashes: of a key, or of dates without a lake form."""
    clear = column.clear_type
    return clear is not None and (column.name in key or pa.types.is_temporal(clear))
