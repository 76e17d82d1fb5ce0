"""Moments of the source's clock of which the lake can't tell: what was committed then, no stream brought.

    ──────────── ? ────────────┤ stream ├────── ? ──────┤ stream ──►
                             until    after           until
                         mirror began   position lost    and was left

A copy shows what was committed before its stream began, and not when. So a moment before that has no place,
whatever comes later: `until` is read from the source's clock once the stream's start is settled, so that
what lies before the start bears an earlier time. `after` is the moment until which the last mark before a
loss is complete. Neither has anything to do with the lake's own clock.

Written by the pipeline with the epoch that begins a stream (a record in the catalog); read by `read.resolve`.
A lake from before there was this record has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from headrace.core.records import as_list, from_record, to_record

KEY = "unseen"  # in the catalog


@as_list
@dataclass(frozen=True, slots=True)
class TimeGap:
    """Moments after the one and before the other; without `after`, all before."""

    after: datetime | None
    until: datetime

    def holds(self, moment: datetime) -> bool:
        return moment < self.until and (self.after is None or self.after < moment)


def of(records: Mapping[str, Any]) -> tuple[TimeGap, ...] | None:
    """Read them from a source's catalog; None where it was begun before there was such a record."""
    found = records.get(KEY)
    if found is None:
        return None
    return tuple(from_record(TimeGap, each) for each in found)


def record(gaps: Iterable[TimeGap]) -> list[Any]:
    """Return the records that the catalog keeps."""
    return [to_record(gap) for gap in gaps]
