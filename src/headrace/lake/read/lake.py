"""Reading a lake: `headrace.Lake`, the public door to everything that was published.

    lake = headrace.Lake("./lake")
    cut  = lake.at()                              the newest mark
    cut  = lake.at(timestamp="2026-11-20T14:30:00+00:00")
    cut  = lake.at(position="16/B374D848")        after any transaction, at a mark or between two
    cut  = lake.at(exact=["orders", "items"])     the newest mark that has these tables
    rows = lake.changes(spark, "public.orders", after="16/B3740000", until=cut)

`changes` gives the difference between two cuts: contents(until) = contents(after) + the sum of the changes.
Opening a lake reads one small file and writes nothing. Each call of `at` looks for new marks and reads no
others again, so a `Lake` may be kept for as long as its process lives; a `Cut` never changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.core.position import Position
from headrace.lake.format import formatfile, layout
from headrace.lake.log import catalog, histories, unknown_moments
from headrace.lake.log.marks import Mark, MarkIndex
from headrace.lake.read import changes as changing
from headrace.lake.read import resolve
from headrace.lake.read.catalogs import Catalogs
from headrace.lake.read.cut import Cut
from headrace.lake.read.positions import spelling_at, spelling_of
from headrace.lake.read.resolve import CommitPlace, NoMark
from headrace.lake.store.open import open_store

Moment = int | str | Position | datetime | Cut  # an epoch, a position, a timestamp, or another cut's place


class Lake:
    """A lake in a directory or a bucket (`s3://`, `gs://`, `abfss://`)."""

    def __init__(
        self, path: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None
    ) -> None:
        self.store = open_store(path, storage_options)
        self.format = formatfile.open_lake(self.store)
        self._catalogs = Catalogs(self.store)

    def __repr__(self) -> str:
        return f"Lake({self.store.url!r})"

    def sources(self) -> list[str]:
        """Return the sources that have published something here."""
        return [layout.unquote(name) for name in self.store.folders(layout.MARKS)]

    def marks(self, source: str | None = None) -> list[Mark]:
        """Return every kept mark of a source, oldest first."""
        return list(self._catalogs.marks(self._source(source)))

    def at(
        self,
        *,
        epoch: int | None = None,
        position: str | Position | None = None,
        timestamp: datetime | str | None = None,
        exact: Sequence[str] | None = None,
        source: str | None = None,
    ) -> Cut:
        """Return the cut at the newest mark, or at the place that exactly one of the arguments names.

        `exact` names tables: it means the newest mark that has all of them.

        A position comes from the source, from a mark or from a cut. It is exclusive: the cut holds all
        transactions that committed before it. A timestamp means the longest prefix of the commit order that
        has no later timestamp.

        With several sources and no `source`, each is at its newest mark or at its own position at that
        timestamp; between sources only the wall clock compares.
        """
        given = [value for value in (epoch, position, timestamp, exact) if value is not None]
        if len(given) > 1:
            raise Misconfigured(
                "LAKE_AT_AMBIGUOUS",
                "a place is named by an epoch, a position, a timestamp or tables, not by several",
                hint="give one of them",
            )
        by_number = epoch is not None or position is not None
        sources = self.sources() if source is None and not by_number else [self._source(source)]
        if not sources:
            resolve.newest([])
        places = {}
        for name in sources:
            try:
                places[name] = self._place(name, epoch, position, timestamp)
            except Misconfigured as error:
                raise error if len(sources) == 1 else error.adding(f'of source "{name}"') from None
        newest = Cut(self.store, places, self._catalogs)
        return newest if exact is None else self._with_all(newest, exact)

    def _with_all(self, newest: Cut, texts: Sequence[str]) -> Cut:
        """Return the cut at the newest marks that have these tables."""
        tables: dict[str, list[TableName]] = {}
        for source, table in map(newest.standings.resolve, texts):
            tables.setdefault(source, []).append(table)
        places = {
            name: resolve.with_all(newest.standings.pasts[name].index, wanted)
            for name, wanted in tables.items()
        }
        return Cut(self.store, newest.places | places, self._catalogs)

    def changes(
        self,
        spark: Any,
        name: str,
        *,
        after: Moment | None = None,
        until: Moment | None = None,
        source: str | None = None,
    ) -> Any:
        """Return the changes of a table's rows between two places, not netted.

        Each change is a row with `_time` and `_diff`. `after` is exclusive, `until` inclusive; each is an
        epoch (a number), a position, a timestamp or a cut.
        Without `after`: from the table's `since` on. Without `until`: up to the newest mark.
        This is a DataFrame of the given Spark session; `changes_polars` and `changes_arrow` need none.
        """
        return self._changes(name, after, until, source).table(spark)

    def changes_polars(
        self,
        name: str,
        *,
        after: Moment | None = None,
        until: Moment | None = None,
        source: str | None = None,
    ) -> pl.LazyFrame:
        """Return the changes as a Polars query; no file is read before it is collected."""
        return self._changes(name, after, until, source).polars()

    def changes_arrow(
        self,
        name: str,
        *,
        after: Moment | None = None,
        until: Moment | None = None,
        source: str | None = None,
    ) -> pa.Table:
        """Return the changes as an Arrow table, all of them in memory."""
        return self._changes(name, after, until, source).arrow()

    def _changes(
        self, name: str, after: Moment | None, until: Moment | None, source: str | None
    ) -> changing.Changes:
        end = self.cut(until, source)
        full = end.standings.resolve(name)
        start = None if after is None else self.cut(after, full[0]).places[full[0]]
        return changing.changes(self.store, end, full, start)

    def history(self, name: str) -> pa.Table:
        """Return the history of a table's rows up to the newest mark; in Polars: `at().history_polars`."""
        return self.at().history(name)

    def catalog(self, source: str | None = None) -> Mapping[str, object]:
        """Return the source's records as of its newest mark, by key."""
        name = self._source(source)
        kept = self._catalogs.marks(name)
        return catalog.load(self.store, name, kept[-1].epoch if kept else 0).records

    def _place(
        self,
        source: str,
        epoch: int | None,
        position: str | Position | None,
        timestamp: datetime | str | None,
    ) -> CommitPlace:
        kept = self._catalogs.marks(source)
        if epoch is not None:
            return self._at_epoch(kept, source, epoch)
        if position is not None or timestamp is not None:
            known = self._catalogs.at(source, kept[-1]) if kept else {}
            spelling = spelling_of(known)
            if position is not None:
                parted = partial(histories.splits_at, self.store, source)
                return resolve.at_position(kept, position, spelling, parted)
            assert timestamp is not None
            late = partial(histories.first_later, self.store, source, resolve.instant(timestamp))
            return resolve.at_timestamp(kept, timestamp, late, spelling, unknown_moments.of(known))
        return resolve.place_of(resolve.newest(kept))

    def _at_epoch(self, kept: MarkIndex, source: str, epoch: int) -> CommitPlace:
        """Return the mark's place; if the mark is gone, its plan still tells the place."""
        try:
            return resolve.at_epoch(kept, epoch)
        except NoMark:
            plan = catalog.final_plan(self.store, source, epoch) if kept and epoch <= kept[-1].epoch else None
            if plan is None or plan.time < 0:
                raise
            place = resolve.at_time(kept, plan.time, spelling_at(self._catalogs, source, kept[-1]))
            if place.mark is not None:  # another mark of the same time, which may name other tables
                raise
            return place

    def cut(self, moment: Moment | None, source: str | None = None) -> Cut:
        """Return the cut at a moment of any kind (epoch, position, timestamp, cut); None: the newest mark."""
        if isinstance(moment, Cut):
            return moment
        if moment is None:
            return self.at(source=source)
        if isinstance(moment, int):
            return self.at(epoch=moment, source=source)
        if isinstance(moment, Position) or (isinstance(moment, str) and self._is_position(moment, source)):
            return self.at(position=moment, source=source)
        return self.at(timestamp=moment, source=source)

    def _is_position(self, text: str, source: str | None) -> bool:
        """Tell whether a source of the lake, or the named one, spells its positions like this."""
        named = [name for name in self.sources() if source in (None, name)]
        kept = ((name, self._catalogs.marks(name)) for name in named)
        return any(
            spelling_at(self._catalogs, name, marks[-1] if marks else None).reads(text)
            for name, marks in kept
        )

    def _source(self, source: str | None) -> str:
        """Return the named source; a lake with one source needs no name."""
        sources = self.sources()
        if source is None and len(sources) == 1:
            return sources[0]
        if source in sources:
            return str(source)
        if not sources:
            resolve.newest([])
        if source is None:
            raise Misconfigured(
                "LAKE_SOURCE_AMBIGUOUS",
                "this lake has several sources",
                detail=", ".join(sources),
                hint="name one of them: --source NAME, source=...",
            )
        raise Misconfigured(
            "LAKE_SOURCE_UNKNOWN",
            f'this lake has no source "{source}"',
            detail=", ".join(sources),
            hint="name one of those: --source NAME, source=...",
        )
