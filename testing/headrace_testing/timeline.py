"""One table of a lake through all of its marks: contents, history, and contents at any time between.

    contents(mark)              what the table's version at that mark holds
    net(after, until)           the sum of the history's updates with after < _time <= until
    contents_at(time)           the first mark at or after that time, minus the history between them

The validators are equations between these. All frames have the table's columns as text (`c0 ... ck`,
see `headrace_testing.canonical`) and a count `n`. The history is read once, when the timeline is made;
the contents of a mark when they are first asked for, which costs a read of the whole table.

`Lake`, `Cut` and `Mark` are what is asked of `headrace.lake.read.lake`; tests hand in lakes made by hand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Protocol, TypeVar

import polars as pl

from headrace.core.history import OWN, history_schema
from headrace.core.position import Position
from headrace.core.schema import Column, TableSchema
from headrace.lake.read.cut import NoHistory
from headrace_testing.canonical import counted, lake_rows, texts

T = TypeVar("T")


class Mark(Protocol):
    """A published cut; see `headrace.lake.log.marks`."""

    @property
    def epoch(self) -> int: ...

    @property
    def time(self) -> int: ...

    @property
    def versions(self) -> Mapping[str, int]: ...


class Cut(Protocol):
    """The tables at a mark; see `headrace.lake.read.cut`."""

    def arrow(self, name: str) -> Any: ...

    def schema(self, name: str) -> Any: ...

    def history(self, name: str) -> Any: ...


class Lake(Protocol):
    """The public door of a lake; see `headrace.lake.read.lake`."""

    def marks(self, source: str | None = None) -> Sequence[Mark]: ...

    def at(self, *, epoch: int | None = None, source: str | None = None) -> Cut: ...


class TravelledLake(Lake, Protocol):
    """A lake that is read at positions, too."""

    def at(
        self, *, epoch: int | None = None, position: str | Position | None = None, source: str | None = None
    ) -> Cut: ...


class Remembered:
    """A lake at rest, in which cuts, marks and timelines are looked up once, however often it is judged."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._marks: dict[str | None, Sequence[Mark]] = {}
        self._cuts: dict[tuple[Any, ...], Cut] = {}
        self._timelines: dict[tuple[str, str | None], Timeline] = {}

    @classmethod
    def of(cls, lake: Lake) -> Remembered:
        """Return the lake itself where it remembers already."""
        return lake if isinstance(lake, cls) else cls(lake)

    def marks(self, source: str | None = None) -> Sequence[Mark]:
        if source not in self._marks:
            self._marks[source] = self._lake.marks(source)
        return self._marks[source]

    def at(self, *, source: str | None = None, **place: Any) -> Cut:
        named = (source, *place.items())
        if named not in self._cuts:
            self._cuts[named] = self._lake.at(source=source, **place)
        return self._cuts[named]

    def timeline(self, name: str, source: str | None = None) -> Timeline:
        if (name, source) not in self._timelines:
            self._timelines[name, source] = Timeline.read(self, name, source)
        return self._timelines[name, source]


@dataclass(frozen=True, slots=True)
class Timeline:
    """A table, the marks that have it under its newest columns, and all that its history says."""

    name: str
    columns: tuple[str, ...]
    marks: tuple[Mark, ...]
    runs: tuple[tuple[Mark, ...], ...]  # the marks, broken where one between them has not the table
    history: pl.DataFrame  # c0 ... ck, n, time, ordinal, xid
    lake: Lake
    source: str | None
    _versions: dict[int, pl.DataFrame] = field(default_factory=dict)  # the contents that were read

    @classmethod
    def read(cls, lake: Lake, name: str, source: str | None = None) -> Timeline:
        runs = runs_of(lake, source, name)
        if not runs:
            raise ValueError(f"no mark has table {name}")
        newest = lake.at(epoch=runs[-1][-1].epoch, source=source)
        columns = tuple(newest.arrow(name).schema.names)
        # History tells of the columns that it has now, and of no others. An interval under other columns
        # that nothing was written in has no folder: the one from before it goes on.
        shape = _shape(lake, source, runs[-1][-1], name)
        runs = tuple(run for run in runs if _shape(lake, source, run[-1], name) == shape)
        return cls(
            name=name,
            columns=columns,
            marks=tuple(mark for run in runs for mark in run),
            runs=runs,
            history=_history(newest, name, columns),
            lake=lake,
            source=source,
        )

    @property
    def texts(self) -> list[str]:
        """The names of the columns of every frame, but for `n`."""
        return [f"c{i}" for i in range(len(self.columns))]

    def contents(self, mark: Mark) -> pl.DataFrame:
        """The contents of the table at that mark; a version is read once."""
        version = mark.versions[self.name]
        if version not in self._versions:
            table = self.lake.at(epoch=mark.epoch, source=self.source).arrow(self.name)
            self._versions[version] = lake_rows(table.select(list(self.columns))).frame
        return self._versions[version]

    def net(self, after: int | None, until: int) -> pl.DataFrame:
        """Add the history up between two times; None: since its beginning."""
        within = pl.col("time") <= until
        if after is not None:
            within &= pl.col("time") > after
        return counted(self.history.filter(within).select(*self.texts, "n"))

    def contents_at(self, time: int) -> pl.DataFrame | None:
        """The contents of the table with every update up to `time` done; None after the last mark."""
        mark = next((mark for mark in self.marks if mark.time >= time), None)
        if mark is None:
            return None
        later = self.net(time, mark.time).with_columns(-pl.col("n"))
        return counted(pl.concat([self.contents(mark), later]))


def runs_of(lake: Lake, source: str | None, *names: str) -> tuple[tuple[Mark, ...], ...]:
    """The marks that have all of these tables, broken where one between them has not, or other columns."""
    marks = lake.marks(source)
    having = [i for i, mark in enumerate(marks) if all(name in mark.versions for name in names)]
    if not having:
        return ()
    versions = {i: tuple((name, marks[i].versions[name]) for name in names) for i in having}
    # A version has one shape: of marks that name the same ones the first is asked.
    first = {version: i for i in reversed(having) for version in versions[i]}
    shape = {(name, n): _shape(lake, source, marks[i], name) for (name, n), i in first.items()}
    shapes = {i: tuple(shape[version] for version in versions[i]) for i in having}
    breaks = [
        at
        for at, (one, next_one) in enumerate(pairwise(having), 1)
        if next_one != one + 1 or shapes[one] != shapes[next_one]
    ]
    edges = [0, *breaks, len(having)]
    return tuple(tuple(marks[i] for i in having[a:b]) for a, b in pairwise(edges))


def _shape(lake: Lake, source: str | None, mark: Mark, name: str) -> tuple[tuple[str, str], ...]:
    """The columns, their types and the folder of its history: under other columns a table has another one.

    Two columns that changed names with each other are told by that alone.
    """
    cut = lake.at(epoch=mark.epoch, source=source)
    fields = tuple((field.name, str(field.type)) for field in cut.schema(name))
    standings = getattr(cut, "standings", None)  # a lake made by hand has none
    history = None if standings is None else standings.history(standings.resolve(name))
    return *fields, ("history", "" if history is None else history.folder)


def spread(run: Sequence[T], sample: int) -> list[T]:
    """The first, the last, and so many between them, evenly."""
    last = len(run) - 1
    places = {0, last, *(round(i * last / (sample + 1)) for i in range(1, sample + 1))}
    return [run[place] for place in sorted(places)]


def history_table(cut: Cut, name: str) -> Any:
    """The history as the lake gives it; without rows for a table that never changed, which has none."""
    with suppress(NoHistory):
        return cut.history(name)
    columns = tuple(Column(field.name, field.type, "", "") for field in cut.arrow(name).schema)
    return history_schema(TableSchema(columns, (), full=True)).empty_table()


def _history(cut: Cut, name: str, columns: tuple[str, ...]) -> pl.DataFrame:
    table = history_table(cut, name)
    own = dict(zip(OWN, table.column_names[-len(OWN) :], strict=True))
    ours = {"_time": "time", "_diff": "n", "_ordinal": "ordinal", "_transaction": "xid"}
    series = [pl.Series(called, table.column(own[column])) for column, called in ours.items()]
    return texts(table.select(list(columns))).with_columns(series)
