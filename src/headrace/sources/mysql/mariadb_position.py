"""MariaDB's GTID positions: the last transaction of each domain, `domain-server-sequence`.

A *domain* is one stream of commits: within it the numbers grow, whichever server assigns them. A position
names the newest transaction of each domain. Its numbers alone decide which transactions it covers:

    0-1-100,7-2-5      domain 0: all up to 100, the last of them from server 1
                       domain 7: all up to 5, the last of them from server 2

Numbers may have gaps, so a position is no count of transactions. But they never go back as long as the server
has `gtid_strict_mode`. The order is partial: of two positions, one may be ahead in some domains and behind in
others. If two positions name *different servers* for one number of a domain, their histories have parted
there: neither is before the other, and no position is the first behind both.

It reads and prints the server's own spelling (`@@gtid_binlog_pos`), in the order of the domains. The names of
many transactions are an Arrow array of texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from headrace.core.errors import Misconfigured

if TYPE_CHECKING:
    import pyarrow as pa

_GTID = re.compile(r"(0|[1-9][0-9]{0,9})-(0|[1-9][0-9]{0,9})-([1-9][0-9]{0,18})\Z")
_NAME = r"^(?P<domain>[0-9]+)-[0-9]+-(?P<number>[0-9]+)$"
_LARGEST_ID = (1 << 32) - 1  # of domains and servers
_LARGEST_NUMBER = (1 << 59) - 1  # servers count further, but the lake's times are eight times the number


@dataclass(frozen=True, slots=True, order=True)
class MariadbGtid:
    """The name of one transaction: its domain, the server that assigned it, and its number in the domain."""

    domain: int
    server: int
    number: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> MariadbGtid:
        """Read `0-1-100`."""
        match = _GTID.match(text.strip())
        if match is None:
            raise _malformed_error(text)
        domain, server, number = (int(each) for each in match.groups())
        if max(domain, server) > _LARGEST_ID or number > _LARGEST_NUMBER:
            raise _malformed_error(text)
        return cls(domain, server, number)


@dataclass(frozen=True, slots=True)
class MariadbPosition:
    """The newest transaction of each domain, in the order of the domains; build it with `of` or `parse`."""

    newest: tuple[MariadbGtid, ...] = ()

    @classmethod
    def of(cls, newest: Iterable[MariadbGtid]) -> MariadbPosition:
        """The position at which these are the newest transactions, one for each domain."""
        return cls(tuple(sorted(newest)))

    @classmethod
    def parse(cls, text: str) -> MariadbPosition:
        """Read the server's spelling; blanks between parts are ignored."""
        parts = [part for part in text.split(",") if part.strip()]
        newest = {gtid.domain: gtid for gtid in map(MariadbGtid.parse, parts)}
        if len(newest) != len(parts):
            raise _malformed_error(text)
        return cls.of(newest.values())

    @classmethod
    def parse_list(cls, text: str) -> MariadbPosition:
        """Read the list at the head of a binlog file, which has an entry for each server of a domain."""
        named = [MariadbGtid.parse(part) for part in text.split(",") if part.strip()]
        return cls.of({gtid.domain: gtid for gtid in sorted(named, key=_number)}.values())

    def __str__(self) -> str:
        return ",".join(map(str, self.newest))

    def __contains__(self, gtid: MariadbGtid) -> bool:
        """Tell whether the position covers a transaction of this history."""
        last = self.last(gtid.domain)
        return last is not None and gtid.number <= last.number

    def __le__(self, other: MariadbPosition) -> bool:
        """Tell whether the other one is as far as this one, or further, in all domains."""
        return all(_is_reached(gtid, other.last(gtid.domain)) for gtid in self.newest)

    @property
    def count(self) -> int:
        """The sum of the domains' numbers: it grows with every transaction."""
        return sum(gtid.number for gtid in self.newest)

    def last(self, domain: int) -> MariadbGtid | None:
        """The newest transaction of a domain; None if the position has none."""
        return next((gtid for gtid in self.newest if gtid.domain == domain), None)

    def behind(self, gtid: MariadbGtid) -> MariadbPosition:
        """The position behind a further transaction."""
        return MariadbPosition.of([gtid, *(each for each in self.newest if each.domain != gtid.domain)])

    def union(self, other: MariadbPosition) -> MariadbPosition | None:
        """The first position that is behind both; None if their histories have parted."""
        both = {gtid.domain: gtid for gtid in sorted((*self.newest, *other.newest), key=_number)}
        found = MariadbPosition.of(both.values())
        return found if self <= found and other <= found else None

    def mask(self, names: Any) -> pa.BooleanArray:
        """Tell for each of these transactions of this history whether the position covers it."""
        # Imported late: a receiver uses positions too, and must start before Arrow would be loaded.
        import pyarrow as pa
        import pyarrow.compute as pc

        from headrace.core.columns import contiguous

        coded = contiguous(names).dictionary_encode()
        said = pc.extract_regex(coded.dictionary, _NAME)
        if coded.null_count or said.null_count:
            raise ValueError("a transaction without a GTID")
        domains, numbers = (said.field(each).cast(pa.int64()).to_numpy() for each in ("domain", "number"))
        covered = np.zeros(len(said), np.bool_)
        # Loop over the domains, not over the transactions: a server has few domains.
        for gtid in self.newest:
            covered |= (domains == gtid.domain) & (numbers <= gtid.number)
        return pa.array(covered).take(coded.indices)


def _is_reached(gtid: MariadbGtid, last: MariadbGtid | None) -> bool:
    return last is not None and (gtid.number < last.number or gtid == last)


def _number(gtid: MariadbGtid) -> int:
    return gtid.number


def _malformed_error(text: str) -> Misconfigured:
    return Misconfigured(
        "POSITION_MALFORMED",
        f"{text[:100]!r} is not a GTID position",
        hint="write it as the server prints @@gtid_binlog_pos, for example 0-1-100,7-2-5",
    )
