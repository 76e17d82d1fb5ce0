"""Reading a lake: `headrace.Lake`, the public door to everything that was published.

    lake = headrace.Lake("./lake")
    cut  = lake.at()                              the newest mark
    cut  = lake.at(timestamp="2026-11-20T14:30:00+00:00")

Opening reads one small file and writes nothing. Each call of `at` looks anew, so a `Lake` may be kept for
as long as its process lives; a `Cut` never changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import datetime

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.position import Lsn
from headrace.lake import catalog, formatfile, layout, seek
from headrace.lake.cut import Cut
from headrace.lake.marks import Mark, Marks
from headrace.lake.store import open_store


class Lake:
    """A lake at a directory or an `s3:` address."""

    def __init__(
        self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.store = open_store(path, storage_options)
        self.format = formatfile.open_lake(self.store)

    def __repr__(self) -> str:
        return f"Lake({self.store.url!r})"

    def sources(self) -> list[str]:
        """The sources that have published something here."""
        return [layout.unquote(name) for name in self.store.folders(layout.MARKS)]

    def marks(self, source: str | None = None) -> list[Mark]:
        """Every kept mark of a source, oldest first."""
        return Marks(self.store, self._source(source)).all()

    def at(
        self,
        *,
        epoch: int | None = None,
        position: str | Lsn | None = None,
        timestamp: datetime | str | None = None,
        source: str | None = None,
    ) -> Cut:
        """The cut at a mark: the newest one, or the one that exactly one of the arguments names.

        With several sources and no `source`, each is at its newest mark or at its own position at that
        timestamp; between sources that is by wall clock.
        """
        given = [value for value in (epoch, position, timestamp) if value is not None]
        if len(given) > 1:
            raise Misconfigured(
                "LAKE_AT_AMBIGUOUS",
                "a mark is named by an epoch, a position or a timestamp, not by several",
                hint="give one of them",
            )
        by_number = epoch is not None or position is not None
        sources = self.sources() if source is None and not by_number else [self._source(source)]
        if not sources:
            seek.newest([])
        return Cut(self.store, {name: self._mark(name, epoch, position, timestamp) for name in sources})

    def history(self, name: str) -> pa.Table:
        """What happened to a table's rows up to the newest mark."""
        return self.at().history(name)

    def catalog(self, source: str | None = None) -> Mapping[str, object]:
        """The source's records as of its newest mark, by key."""
        name = self._source(source)
        newest = Marks(self.store, name).newest()
        return catalog.load(self.store, name, newest.epoch if newest else 0).records

    def _mark(
        self, source: str, epoch: int | None, position: str | Lsn | None, timestamp: datetime | str | None
    ) -> Mark:
        marks = Marks(self.store, source)
        if epoch is not None:
            return seek.at_epoch(marks.all(), epoch)
        if position is not None:
            return seek.at_position(marks.all(), str(position))
        if timestamp is not None:
            return seek.at_timestamp(marks.all(), timestamp)
        newest = marks.newest()
        return seek.newest([newest] if newest else [])

    def _source(self, source: str | None) -> str:
        """The source that is meant; it may be left out where the lake has one."""
        sources = self.sources()
        if source is None and len(sources) == 1:
            return sources[0]
        if source in sources:
            return str(source)
        if not sources:
            seek.newest([])
        if source is None:
            raise Misconfigured(
                "LAKE_SOURCE_AMBIGUOUS",
                "this lake has several sources",
                detail=", ".join(sources),
                hint="name one of them: source=...",
            )
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            f'this lake has no source "{source}"',
            detail=", ".join(sources),
            hint="name one of those: source=...",
        )
