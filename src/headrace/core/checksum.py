"""Checksums of collections: two sides compare them without seeing each other's rows.

    checksum(C)  =  Σ { diff · digest(row) : (row, diff) in C }        modulo 2^64, for each half of a digest

The sum is linear, as all of the algebra is: the order of rows does not matter, duplicates count as often as
they are there, parts that were summed apart add up, and taking updates away from contents takes their sum
away from the contents' sum. So nobody has to have a whole collection in one place to know its checksum.

A collection is summed in *buckets*, by a digest of what tells its rows apart (the key, or the whole row of a
multiset) or by ranges of it, so that a difference says where to look. Numbers of rows are summed beside the
digests.

Pure.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.core.columns import Ints

Numbers = npt.NDArray[np.uint64]

MOST_BUCKETS = 1 << 16
MOST_SUMS = 1 << 22  # of 24 bytes each
ROWS_EACH = 1024
BYTES_EACH = 256 << 10


@dataclass(frozen=True, slots=True)
class Sums:
    """For each bucket how many rows there are, and the sums of both halves of their digests."""

    counts: Ints
    low: Numbers
    high: Numbers

    @classmethod
    def zero(cls, buckets: int) -> Sums:
        """Return the sums of no rows."""
        halves = np.zeros((2, buckets), np.uint64)
        return cls(np.zeros(buckets, np.int64), halves[0], halves[1])

    @classmethod
    def of(cls, buckets: int, which: Ints, digests: tuple[Numbers, Numbers], diffs: Ints) -> Sums:
        """Sum updates: the bucket of each, its digest, and how often it counts."""
        sums = cls.zero(buckets)
        np.add.at(sums.counts, which, diffs)
        # A negative diff read as unsigned is its own negative modulo 2^64: just what a sum needs.
        times = diffs.view(np.uint64)
        np.add.at(sums.low, which, digests[0] * times)
        np.add.at(sums.high, which, digests[1] * times)
        return sums

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.counts + other.counts, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.counts - other.counts, self.low - other.low, self.high - other.high)

    def only(self, buckets: Ints) -> Sums:
        """Select the sums of these buckets."""
        return Sums(self.counts[buckets], self.low[buckets], self.high[buckets])

    def spread(self, buckets: Ints, count: int) -> Sums:
        """These as the sums of these buckets, of so many; the inverse of `only`."""
        sums = Sums.zero(count)
        sums.counts[buckets], sums.low[buckets], sums.high[buckets] = self.counts, self.low, self.high
        return sums

    @property
    def rows(self) -> int:
        """The number of rows in all."""
        return int(self.counts.sum())

    def uneven(self) -> Ints:
        """The buckets that do not come to nothing; of a difference, those in which the sides differ."""
        return np.flatnonzero((self.counts != 0) | (self.low != 0) | (self.high != 0))


def bucket_count(rows: int, size: int, parts: int = 1) -> int:
    """Choose the number of buckets for a collection of about so many rows and bytes: a power of two.

    `parts` are summed apart and kept; all of their sums together are bounded, too.
    """
    wanted = max(1, rows // ROWS_EACH, size // BYTES_EACH)
    most = min(MOST_BUCKETS, max(1, MOST_SUMS // max(1, parts)))
    return 1 << (min(wanted, most).bit_length() - 1)


def buckets_of(digests: tuple[Numbers, Numbers], buckets: int) -> Ints:
    """The bucket of each identity, by its digest."""
    return (digests[1] & np.uint64(buckets - 1)).astype(np.int64)
