"""The place in a source's life for an epoch, a position or a timestamp.

    place      (time, frontier, mark)     all updates with `_time <= time`, and none after it
    mark       the mark that is exactly there, or None between two marks

A place need not be at a mark: contents between marks are made from history (`headrace.lake.read.travel`). If
the lake cannot answer a question exactly, the error says what is kept; nothing here picks a place that is
merely near.

Commit timestamps are not monotone in commit order, so `at_timestamp` takes the longest prefix of the
order whose timestamps are all <= T: a transaction with an early timestamp behind one with a late one is
not in it. A mark carries the latest commit timestamp of its epoch; `late` looks into history for the first
later transaction of an epoch. Transactions that changed no mirrored row do not count.

    marks           ──┬──────────────┬────────────────┬──►
    latest            12:00          12:07            12:06
    complete_until    12:01          12:08            12:09
    T = 12:05         ├── ok ──┬─ x ─┤                   the place is before x, the first that is later than T
    T = 12:08         ├── ok ────────┤                   none is later up to the mark that is complete until T
    T = 12:10                                            refused: what is committed then may have yet to come

A moment is refused if it lies before the mirror began, or in a time for which the position in the stream was
lost (`headrace.lake.log.unknown_moments`). A question has one answer for ever. So a moment is answered only
once no future transaction can change the answer. Either a later transaction is there, or a mark is complete
until that moment or a later one: the source's own clock had passed it when the source was at the mark. A
transaction behind a mark counts as later than the mark's `complete_until`, even if it is dated back: it was
replicated from elsewhere under the time of its first commit, or made after a clock was set back.

Callers pass marks as a sequence in the order of their epochs. The code reads only those that it needs,
because there may be hundreds of thousands (`headrace.lake.log.marks.MarkIndex`).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.core.position import Position, Spelling, plain
from headrace.lake.log.marks import Mark, MarkIndex
from headrace.lake.log.unknown_moments import TimeGap
from headrace.lake.read.positions import show_position

# (before, mark): of the transactions between the two marks, the time of the first that is later than T, and
# whether there are others before it; None where none is later.
Late = Callable[[Mark | None, Mark], tuple[int, bool] | None]

# (covers, time, before, mark): whether of the transactions between the two marks just those up to the time
# are covered, by their names.
Covers = Callable[[pa.ChunkedArray], pa.BooleanArray]
Parted = Callable[[Covers, int, Mark | None, Mark], bool]

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class CommitPlace:
    """A place in the commit order of a source; `incarnation` says how its frontier is to be read."""

    time: int
    frontier: str
    incarnation: int
    mark: Mark | None = None

    @property
    def text(self) -> str:
        """Print the place for a person."""
        return f'"{plain(self.frontier)}"' if self.mark is None else f"epoch {self.mark.epoch}"

    @property
    def text_with_position(self) -> str:
        """Print the place with its position, which alone names it between two marks."""
        at = plain(self.frontier)
        return f"{self.text} ({at})" if self.mark is not None and at else self.text


class NoMark(Misconfigured):
    """The error where the lake has no mark to read at."""

    codes = ("LAKE_NO_MARK",)


def place_of(mark: Mark) -> CommitPlace:
    return CommitPlace(mark.time, mark.frontier, mark.incarnation, mark)


def newest(marks: Sequence[Mark]) -> Mark:
    """Return the last mark that was published."""
    if not marks:
        raise NoMark(
            "LAKE_NO_MARK",
            "the lake has no mark yet, so there is nothing to read",
            hint="wait for the first one: headrace status --lake DIR shows how far the copy is",
        )
    return marks[-1]


def at_epoch(marks: Sequence[Mark], epoch: int) -> CommitPlace:
    """Return the mark with this number."""
    if isinstance(marks, MarkIndex):
        found = marks.find(epoch)
    else:
        found = next((mark for mark in marks if mark.epoch == epoch), None)
    if found is not None:
        return place_of(found)
    raise _none(marks, f"there is no mark of epoch {epoch}")


def with_all(marks: Sequence[Mark], tables: Collection[TableName]) -> CommitPlace:
    """Return the newest mark that has all these tables."""
    wanted = set(map(str, tables))
    found = next((mark for mark in reversed(marks) if wanted <= mark.versions.keys()), None)
    if found is not None:
        return place_of(found)
    raise _none(marks, f"no mark has all of the tables {', '.join(sorted(wanted))}")


def at_time(
    marks: Sequence[Mark], time: int, spelling: Spelling, incarnation: int | None = None
) -> CommitPlace:
    """Return the place that holds everything up to this time, with the newest mark exactly there, if any."""
    last = newest(marks)
    if time > last.time:
        raise _ahead(marks, "the lake has not reached that position yet")
    at = bisect_right(marks, time, key=lambda mark: mark.time)
    if at and marks[at - 1].time == time:
        return place_of(marks[at - 1])
    life = marks[min(at, len(marks) - 1)]
    text = show_position(spelling, time + 1, life.position)
    return CommitPlace(time, text, life.incarnation if incarnation is None else incarnation)


def at_position(
    marks: Sequence[Mark], position: str | Position, spelling: Spelling, splits: Parted | None = None
) -> CommitPlace:
    """Return the place at this position: it holds all transactions that committed before it."""
    newest(marks)
    if isinstance(position, Position):
        return at_time(marks, position.last, spelling)
    found: tuple[int, Mark | None, Mark] | None = None
    # Read a text in the newest life of the source that has such a position: the life's marks tell from where
    # to where the lake followed it.
    for first, mark in _lives(marks, spelling):
        time = spelling.time(position, mark.position) if spelling.reads(position) else None
        if time is None:
            return _at_spelling(marks, position)
        within = first is None or first.position.time <= time
        if time <= mark.position.time and (within or found is None):
            found = time, first, mark
            if within:
                break
    if found is None:
        raise _ahead(marks, "the lake has not reached that position yet")
    time, first, mark = found
    place = at_time(marks, time - 1, spelling, mark.incarnation)
    if not _was_there(marks, place, position, spelling, (first, mark), splits):
        raise _none(marks, f'the source never was at position "{position}"')
    return place


def _was_there(
    marks: Sequence[Mark],
    place: CommitPlace,
    position: str,
    spelling: Spelling,
    life: tuple[Mark | None, Mark],
    parted: Parted | None,
) -> bool:
    """Tell whether the source was ever at this position; only then does its time give its place.

    `life` are the first and the last mark of the life in which it was read, as `_lives` finds them.
    """
    first, last = life
    at = bisect_right(marks, place.time, key=lambda mark: mark.time)
    before, after = marks[at - 1] if at else None, marks[at] if at < len(marks) else None
    for near in (before, after):
        if near is None or near.epoch > last.epoch or (first is not None and near.epoch < first.epoch):
            continue  # no position to compare it with
        if not spelling.agree(position, near.frontier):
            return False
    covers = spelling.covering(position) if place.mark is None else None
    if after is None or covers is None or parted is None:
        return True
    return parted(covers, place.time, before, after)


def at_timestamp(
    marks: Sequence[Mark],
    moment: datetime | str,
    late: Late,
    spelling: Spelling,
    gaps: Sequence[TimeGap] | None = None,
) -> CommitPlace:
    """Return the place of the longest prefix of the commit order with no commit timestamp after this moment.

    `log.unknown_moments` lists the moments of which nothing is known; None: nobody recorded them.
    """
    limit = instant(moment)
    newest(marks)
    for stretch in (TimeGap(None, marks[0].published_at),) if gaps is None else gaps:
        if stretch.holds(limit):
            raise _unseen_error(marks, limit, stretch)
    end = bisect_left(marks, limit, key=lambda mark: mark.complete_until or _BEGINNING)
    for at in _later(marks, limit, min(end + 1, len(marks))):
        before = marks[at - 1] if at else None
        if before is None and marks[at].epoch > 1:
            # History before the first kept mark may be gone, and with it the answer.
            raise _none(marks, f"the lake does not reach back to {limit.isoformat()}")
        found = late(before, marks[at])
        if found is None:
            continue
        time, others = found
        return at_time(marks, time - 1, spelling) if others or before is None else place_of(before)
    if end == len(marks):
        raise _ahead(marks, f"the lake does not hold yet all that was committed up to {limit.isoformat()}")
    if not end and marks[0].epoch > 1:
        # An earlier mark may have been complete until then, too.
        raise _none(marks, f"the lake does not reach back to {limit.isoformat()}")
    return at_time(marks, marks[end].time, spelling)


def _later(marks: Sequence[Mark], limit: datetime, end: int) -> Iterator[int]:
    """Yield the places in `marks`, before `end`, of marks with a transaction after the limit."""
    spans = [(0, end)]
    if isinstance(marks, MarkIndex):
        blocks = enumerate(marks.blocks)
        spans = [
            (marks.start(number), marks.start(number) + block.count)
            for number, block in blocks
            if block.latest is None or block.latest > limit
        ]
    for start, stop in spans:
        for at in range(start, min(stop, end)):
            latest = marks[at].upstream_commit_ts
            if latest is not None and latest > limit:
                yield at


def _lives(marks: Sequence[Mark], spelling: Spelling) -> Iterator[tuple[Mark | None, Mark]]:
    """Find the first and the last mark of each life, newest first; of the oldest life only the last mark.

    A life ends with its incarnation, and where the spelling of positions changes: during a recovery of a lost
    position, marks of the new incarnation stand where the old one ended, and version 1 of the lake had a
    spelling of its own for the positions of a server that was set back.
    """
    stop = len(marks)
    while stop:
        last = marks[stop - 1]
        start = bisect_left(marks, last.incarnation, hi=stop, key=lambda mark: mark.incarnation)
        near = last.position

        def at_home(mark: Mark, near: Position = near) -> bool:
            text = mark.frontier
            return spelling.reads(text) and spelling.time(text, near) == spelling.time(text, mark.position)

        first = bisect_left(marks, True, lo=start, hi=stop - 1, key=at_home)
        yield marks[first] if first else None, last
        stop = first


def _at_spelling(marks: Sequence[Mark], position: str) -> CommitPlace:
    """Return the newest mark whose position has this text, for texts that only the source can compare."""
    for mark in reversed(marks):
        if mark.frontier == position.strip():
            return place_of(mark)
    raise _none(marks, f'there is no mark at position "{position}"')


def instant(moment: datetime | str) -> datetime:
    """Return a moment as an instant in UTC; refuse one without a zone."""
    try:
        found = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        raise _not_an_instant(f"{moment!r} is not a timestamp") from error
    if found.tzinfo is None:
        raise _not_an_instant("a timestamp without a time zone names no instant")
    return found.astimezone(UTC)


def _not_an_instant(primary: str) -> Misconfigured:
    return Misconfigured(
        "TIMESTAMP_MALFORMED",
        primary,
        hint="write it in ISO 8601 with its zone, for example 2026-11-20T14:30:00+00:00",
    )


def _none(marks: Sequence[Mark], primary: str) -> Misconfigured:
    if not marks:
        hint = "wait for the first one: headrace status --lake DIR shows how far the copy is"
        return NoMark("LAKE_NO_MARK", primary, detail="the lake has no mark yet", hint=hint)
    return NoMark(
        "LAKE_NO_MARK",
        primary,
        detail=kept_range(marks),
        hint="choose an epoch, a position or a moment of that range; or leave out --at (at=...)",
    )


def _unseen_error(marks: Sequence[Mark], limit: datetime, stretch: TimeGap) -> Misconfigured:
    if stretch.after is None:
        return _none(marks, f"the lake does not reach back to {limit.isoformat()}")
    return NoMark(
        "LAKE_NO_MARK",
        f"the lake does not know what the source held at {limit.isoformat()}: its place in the log was lost",
        detail=f"nothing is known between {stretch.after.isoformat()} and {stretch.until.isoformat()}",
        hint=f"choose a moment up to {stretch.after.isoformat()}, or from {stretch.until.isoformat()} on",
    )


def _ahead(marks: Sequence[Mark], primary: str) -> Misconfigured:
    return Misconfigured(
        "LAKE_NOT_REACHED",
        primary,
        detail=kept_range(marks),
        hint="leave out --at (at=...) for the newest mark; headrace status shows how far the mirror is",
    )


def kept_range(marks: Sequence[Mark]) -> str:
    """Tell a person what is kept."""
    first, last = marks[0], marks[-1]
    until = last.complete_until
    clock = "" if until is None else f", complete up to {until.isoformat()} by the source's clock"
    begin = f'"{plain(first.frontier)}"' if plain(first.frontier) else "the beginning of the log"
    return (
        f"kept are the epochs {first.epoch} to {last.epoch}, positions {begin} to "
        f'"{plain(last.frontier)}", the last of them published at {last.published_at.isoformat()}{clock}'
    )
