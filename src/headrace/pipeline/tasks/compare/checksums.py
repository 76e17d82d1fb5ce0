"""Checksums: the rows of one table in buckets of what tells them apart, and what each bucket comes to.

    rows ─┬─ keycode of the identity ─► `ByRange`, `ByDigest`: the bucket of each
          └─ keycode of all columns ── digest ─► `Sums` of each bucket        (`core.checksum`)

How a resync and a proof find out where two contents differ without bringing them together: whoever sums one
part of a side needs no other part, sums of parts add up to those of the side, and only buckets whose sums
differ are looked into. Ranges of keys lie together in files, so what differs is read and shuffled by them:
for a resync, whose two sides are files sorted by key. A source is read in the order of its pages, where keys
lie anyhow, and a key that the lake has may be missing there: for a proof buckets are digests.

Equal sums are equal rows bit for bit: both sides come here as the lake types them, from files (`LakeFile`) or
from COPY (`decode.copyrows`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from headrace.core.checksum import Sums, buckets_of
from headrace.core.columns import Ints
from headrace.core.keycode import keycode
from headrace.decode.digest import digests
from headrace.lake.format import datafile
from headrace.lake.format.vector import FileRows
from headrace.pipeline.tasks.routing import WIDTH, prefixes
from headrace.pipeline.tasks.table_task import LakeAddress


@dataclass(frozen=True, slots=True)
class LakeFile:
    """A data file of the lake."""

    lake: LakeAddress
    folder: str
    file: FileRows

    def rows(self, schema: pa.Schema) -> pa.Table:
        """Its rows as this schema has them, also where another program wrote it."""
        return datafile.read(self.lake.open(), self.folder, self.file, schema=schema)


@dataclass(frozen=True, slots=True)
class ByDigest:
    """Buckets by the digest of the identity: a power of two of them, about equally full."""

    count: int

    def numbers(self, codes: pa.Array) -> Ints:
        """The bucket of each identity (a keycode)."""
        return buckets_of(digests(codes), self.count)


@dataclass(frozen=True, slots=True)
class ByRange:
    """Buckets by the order of the identity: where each but the first begins, cut as `routing` compares."""

    bounds: tuple[bytes, ...] = ()

    @property
    def count(self) -> int:
        return len(self.bounds) + 1

    def numbers(self, codes: pa.Array) -> Ints:
        """The bucket of each identity (a keycode)."""
        edges = np.array(self.bounds, dtype=f"S{WIDTH}")
        return np.searchsorted(edges, prefixes(codes), side="right").astype(np.int64)


@dataclass(frozen=True, slots=True)
class Checksums:
    """The sums of a table, and the buckets that they go into."""

    names: tuple[str, ...]  # the columns that count
    identity: tuple[str, ...]  # those that tell rows apart
    buckets: ByDigest | ByRange

    def numbers(self, rows: pa.Table) -> Ints:
        """The bucket of each row."""
        return self.buckets.numbers(_codes(rows, self.identity))

    def of(self, rows: pa.Table, diffs: Ints | None = None) -> tuple[Ints, Sums]:
        """The bucket of each row, and what all come to; each counts once, or as often as is said."""
        codes = _codes(rows, self.names)
        same = self.identity == self.names
        which = self.buckets.numbers(codes if same else _codes(rows, self.identity))
        times = np.ones(rows.num_rows, np.int64) if diffs is None else diffs
        return which, Sums.of(self.buckets.count, which, digests(codes), times)


def _codes(rows: pa.Table, names: tuple[str, ...]) -> pa.Array:
    return keycode([rows.column(name) for name in names])
