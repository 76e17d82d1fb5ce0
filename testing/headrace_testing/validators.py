"""The guarantees G1, G2 and G3 as functions from a lake to a list of violations.

    exact(lake, database)          G1  each table of the newest mark equals the source, row for row
    exact_at(lake, recordings)     G1  at times in the past of which `record` took what the source held
    whole(lake)                    G2  no mark, and no time in history, shows a part of a transaction
    definite(lake)                 G3  contents(later mark) = contents(earlier) + history between them,
                                       no row is there less than no times, no change is told twice
    travelled(lake)                G3  what the lake's reader gives at positions between marks is the
                                       first mark at or after them, minus history
    consistent(lake)               G3  both of these, which then read each version of a table once

They know nothing of how a lake comes about, only its public reader, so they run on any pipeline; of a source
they know its `oracle`, which is found by the address. `exact` needs a source that is at rest and a lake that
has caught up with it; the others may run at any time.

Reading a whole table at each of thousands of marks would take hours. The history is therefore judged at
*every* time, and the tables themselves at the first, the last and `sample` marks between (`every=True`:
all of them); between two of those, the equation covers what lies there.

A violation says how many rows differ and, where keys are known, which; values only if `values=True`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import polars as pl

from headrace.core.names import TableName
from headrace.core.position import Position
from headrace_testing.canonical import counted, difference, lake_rows
from headrace_testing.oracle.contract import Recording
from headrace_testing.oracle.registry import oracle_of
from headrace_testing.timeline import Lake, Mark, Remembered, Timeline, TravelledLake, spread
from headrace_testing.violation import Show, Violation
from headrace_testing.wholeness import whole

__all__ = [
    "Recording",
    "Show",
    "Violation",
    "consistent",
    "definite",
    "exact",
    "exact_at",
    "record",
    "travelled",
    "whole",
]


def exact(
    lake: Lake,
    url: str,
    tables: Iterable[str] | None = None,
    *,
    source: str | None = None,
    values: bool = False,
) -> list[Violation]:
    """Compare the newest mark with the source as it is now; the source is at rest, the lake caught up."""
    mark = lake.marks(source)[-1]
    cut = lake.at(epoch=mark.epoch, source=source)
    found: list[Violation] = []
    with oracle_of(url).moment(url) as moment:
        for name in sorted(mark.versions) if tables is None else tables:
            if name not in mark.versions:
                found.append(Violation("G1", name, "the newest mark does not have it", mark.epoch))
                continue
            table = TableName.parse(name)
            have = lake_rows(cut.arrow(name))
            wrong = difference(have.frame, moment.rows(table).select(have.names).frame)
            if wrong.height:
                show = Show({name: moment.key(table)}, values)
                found.append(Violation("G1", name, show.describe(wrong, name, have.names), mark.epoch))
    return found


def record(url: str, tables: Iterable[str]) -> Recording:
    """Record what the source holds at one position, whatever is being written meanwhile."""
    return oracle_of(url).record(url, tables)


def exact_at(
    lake: Lake, recordings: Iterable[Recording], *, source: str | None = None, values: bool = False
) -> list[Violation]:
    """Compare the lake at past positions with what the source held there."""
    lake, recordings = Remembered.of(lake), list(recordings)
    found: list[Violation] = []
    for name in sorted({name for recording in recordings for name in recording.rows}):
        timeline = lake.timeline(name, source)
        for recording in recordings:
            if name in recording.rows:
                found += _exact_then(timeline, recording, Show(values=values))
    return found


def definite(
    lake: Lake,
    *,
    source: str | None = None,
    tables: Iterable[str] | None = None,
    sample: int = 20,
    every: bool = False,
    show: Show | None = None,
    of_many: bool = False,
) -> list[Violation]:
    """Everything that history and marks say of each other agrees.

    A time is that of one transaction, or, where it is `of_many`, each transaction is at one time.
    """
    lake = Remembered.of(lake)
    marks = lake.marks(source)
    found = list(_marks_go_forward(marks))
    names = sorted({name for mark in marks for name in mark.versions}) if tables is None else tables
    for name in names:
        timeline = lake.timeline(name, source)
        found += _history_is_sound(timeline, marks[-1])
        found += _transactions_are_whole(timeline, of_many)
        for number, run in enumerate(timeline.runs):
            chosen = run if every else spread(run, sample)
            found += _adds_up(timeline, chosen, show or Show())
            found += _stands_still(timeline, run, show or Show())
            found += _never_negative(timeline, run, show or Show(), first=number == 0)
            found += _nothing_is_left(timeline, run, first=number == 0)
    return found


def travelled(
    lake: TravelledLake, *, source: str | None = None, tables: Iterable[str] | None = None, sample: int = 6
) -> list[Violation]:
    """The reader's time travel against the same sum made here, at some times of each table's history."""
    lake = Remembered.of(lake)
    marks = lake.marks(source)
    found = []
    for name in sorted({name for mark in marks for name in mark.versions} if tables is None else tables):
        timeline = lake.timeline(name, source)
        last = timeline.runs[-1][-1].time
        times = sorted({time for time in timeline.history["time"].to_list() if time <= last})
        for time in spread(times, sample) if times else ():
            have = lake_rows(lake.at(position=Position(time + 1, ""), source=source).arrow(name)).frame
            want = timeline.contents_at(time)
            assert want is not None
            wrong = difference(have, want)
            if wrong.height:
                what = Show().describe(wrong, name, timeline.columns)
                found.append(Violation("G3", name, what, time=time))
    return found


def consistent(
    lake: TravelledLake,
    *,
    tables: Iterable[str] | None = None,
    sample: int = 6,
    of_many: bool = False,
) -> list[Violation]:
    """Judge a lake at rest as `definite` and `travelled` do, the latter at so many times."""
    lake, tables = Remembered.of(lake), None if tables is None else list(tables)
    found = definite(lake, tables=tables, of_many=of_many)
    return found + travelled(lake, tables=tables, sample=sample)


def _exact_then(timeline: Timeline, recording: Recording, show: Show) -> list[Violation]:
    # The recording is of the commits *below* its position.
    time = recording.position.last
    have = timeline.contents_at(time)
    if have is None:
        return [Violation("G1", timeline.name, "no mark has reached this position", time=time)]
    want = recording.rows[timeline.name].select(timeline.columns).frame
    wrong = difference(have, want)
    if not wrong.height:
        return []
    what = show.describe(wrong, timeline.name, timeline.columns)
    return [Violation("G1", timeline.name, what, time=time)]


def _marks_go_forward(marks: Sequence[Mark]) -> Iterator[Violation]:
    for earlier, later in pairwise(marks):
        if later.epoch <= earlier.epoch or later.time < earlier.time:
            yield Violation("G3", "marks", f"goes back behind epoch {earlier.epoch}", later.epoch, later.time)


def _history_is_sound(timeline: Timeline, newest: Mark) -> Iterator[Violation]:
    """Each side of each change is told once, and not too early."""
    history = timeline.history
    sides = history.group_by("time", "ordinal", "n").len()
    wrong = (pl.col("len") > 1) | (pl.col("n").abs() != 1)
    sides = sides.filter(wrong).join(_truncations(timeline), on=("time", "ordinal"), how="anti")
    if sides.height:
        first = int(min(sides["time"].to_list()))
        what = f"{sides.height} sides of changes in history are told twice or count more than once"
        yield Violation("G4", timeline.name, what, time=first)
    early = history.filter(pl.col("time") > newest.time)
    if early.height:
        what = f"{early.height} rows of history are later than the newest mark"
        yield Violation("G3", timeline.name, what, newest.epoch, newest.time)


def _transactions_are_whole(timeline: Timeline, of_many: bool) -> Iterator[Violation]:
    """A time has rows of one transaction; or, where it is of many, each of these is at one time."""
    history = timeline.history
    one, others = ("xid", "time") if of_many else ("time", "xid")
    # Rows that no transaction of the source made are those of replaced contents.
    made = history.filter(pl.col("xid") != 0) if of_many else history
    torn = made.group_by(one).agg(pl.col(others).n_unique()).filter(pl.col(others) > 1)
    if torn.height:
        times = made.join(torn.select(one), on=one, how="semi")["time"]
        words = ("transactions", "time") if of_many else ("times", "transaction")
        what = f"{torn.height} {words[0]} in history have rows of more than one {words[1]}"
        yield Violation("G3", timeline.name, what, time=int(min(times.to_list())))


def _truncations(timeline: Timeline) -> pl.DataFrame:
    """The ordinals that may be truncations: they take rows, more than one, and bring none."""
    ordinals = timeline.history.group_by("time", "ordinal").agg(pl.len(), most=pl.col("n").max())
    return ordinals.filter(pl.col("len") > 1, pl.col("most") == -1).select("time", "ordinal")


def _nothing_is_left(timeline: Timeline, run: Sequence[Mark], *, first: bool) -> Iterator[Violation]:
    """A change that takes several rows is a truncation: no row of the table is there after it."""
    history = timeline.history.filter(pl.col("time") <= run[-1].time)
    if not first:
        history = history.filter(pl.col("time") > run[0].time)
    known = history.filter(pl.col("time") <= run[0].time)["n"].sum()
    start = int(timeline.contents(run[0])["n"].sum()) - int(known)
    steps = history.group_by("time", "ordinal").agg(pl.col("n").sum()).sort("time", "ordinal")
    left = steps.with_columns(left=pl.col("n").cum_sum() + start)
    wrong = left.join(_truncations(timeline), on=("time", "ordinal")).filter(pl.col("left") != 0)
    if wrong.height:
        what = f"{wrong.height} changes took several rows, and not all that were there"
        yield Violation("G4", timeline.name, what, time=int(min(wrong["time"].to_list())))


def _adds_up(timeline: Timeline, marks: Sequence[Mark], show: Show) -> Iterator[Violation]:
    """contents(later) = contents(earlier) + history between them."""
    before = timeline.contents(marks[0])
    for earlier, later in pairwise(marks):
        after = before if _same(timeline, earlier, later) else timeline.contents(later)
        explained = counted(pl.concat([before, timeline.net(earlier.time, later.time)]))
        wrong = difference(after, explained)
        if wrong.height:
            what = show.describe(wrong, timeline.name, timeline.columns)
            yield Violation(
                "G3", timeline.name, f"against epoch {earlier.epoch} and history, {what}", later.epoch
            )
        before = after


def _stands_still(timeline: Timeline, run: Sequence[Mark], show: Show) -> Iterator[Violation]:
    """History adds up to nothing between two marks that name one version."""
    bounds = pl.DataFrame({"until": [mark.time for mark in run], "at": range(len(run))}).unique(
        "until", keep="first"
    )
    history = timeline.history.filter(pl.col("time") > run[0].time, pl.col("time") <= run[-1].time)
    placed = history.sort("time").join_asof(
        bounds.sort("until"), left_on="time", right_on="until", strategy="forward"
    )
    net = placed.group_by("at", *timeline.texts).agg(pl.col("n").sum()).filter(pl.col("n") != 0)
    for at in sorted(net["at"].unique().to_list()):
        if _same(timeline, run[at - 1], run[at]):
            rows = net.filter(pl.col("at") == at)
            rest = show.describe(rows, timeline.name, timeline.columns)
            what = f"history changes it and its version stays: {rest}"
            yield Violation("G3", timeline.name, what, run[at].epoch)


def _never_negative(
    timeline: Timeline, run: Sequence[Mark], show: Show, *, first: bool
) -> Iterator[Violation]:
    """From the beginning of history to the end of the run, no row is there less than no times."""
    mark, last = run[0], run[-1]
    history = timeline.history.filter(pl.col("time") <= last.time)
    if not first:
        history = history.filter(pl.col("time") > mark.time)
    # What was there before the first update: the first mark, minus all of history that it holds.
    base = timeline.contents(mark)
    if first:
        base = difference(base, timeline.net(None, mark.time))
    start = base.with_columns(time=pl.lit(None, pl.Int64))
    updates = pl.concat([start, history.select(*timeline.texts, "n", "time")])
    steps = updates.group_by(*timeline.texts, "time").agg(pl.col("n").sum()).sort("time", nulls_last=False)
    counts = steps.with_columns(pl.col("n").cum_sum().over(timeline.texts))
    wrong = counts.filter(pl.col("n") < 0).sort("time", nulls_last=False)
    if wrong.height:
        time = wrong["time"].to_list()[0]
        what = f"there less than no times: {show.describe(wrong, timeline.name, timeline.columns)}"
        yield Violation("G3", timeline.name, what, time=time)


def _same(timeline: Timeline, one: Mark, other: Mark) -> bool:
    return one.versions[timeline.name] == other.versions[timeline.name]
