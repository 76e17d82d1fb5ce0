"""Which mark somebody means: by epoch, by position, or by time of day.

Pure functions over the marks of one source, given in the order of their epochs. A question that no kept
mark answers exactly is refused with what is kept; nothing here picks a mark that is merely near.

Commit timestamps are not monotone in commit order, so `at_timestamp` takes the longest prefix of the
order whose timestamps are all <= T: a transaction with an early timestamp behind one with a late one is
not in it. A mark stands for its whole epoch, with the latest commit timestamp that it holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from headrace.core.errors import Misconfigured
from headrace.core.position import Lsn
from headrace.lake.marks import Mark


def newest(marks: Sequence[Mark]) -> Mark:
    """The last mark that was published."""
    if not marks:
        raise Misconfigured(
            "LAKE_NO_MARK",
            "nothing has been published in this lake yet",
            hint="wait for the first mark: headrace status shows how far the copy is",
        )
    return marks[-1]


def at_epoch(marks: Sequence[Mark], epoch: int) -> Mark:
    """The mark with this number."""
    for mark in reversed(marks):
        if mark.epoch == epoch:
            return mark
    raise _none(marks, f"there is no mark of epoch {epoch}")


def at_position(marks: Sequence[Mark], position: str) -> Mark:
    """The newest mark whose frontier is this position."""
    wanted = _canonical(position)
    for mark in reversed(marks):
        if _canonical(mark.frontier) == wanted:
            return mark
    raise _none(marks, f'there is no mark at position "{position}"')


def at_timestamp(marks: Sequence[Mark], moment: datetime | str) -> Mark:
    """The newest mark that holds only transactions committed at or before this moment."""
    limit = _instant(moment)
    held: Mark | None = None
    for mark in marks:
        if mark.upstream_commit_ts is not None and mark.upstream_commit_ts > limit:
            break
        held = mark
    if held is None:
        raise _none(marks, f"every mark holds transactions later than {limit.isoformat()}")
    return held


def _instant(moment: datetime | str) -> datetime:
    try:
        instant = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    except ValueError as error:
        raise _not_an_instant(f"{moment!r} is not a timestamp") from error
    if instant.tzinfo is None:
        raise _not_an_instant("a timestamp without a time zone names no instant")
    return instant.astimezone(UTC)


def _not_an_instant(primary: str) -> Misconfigured:
    return Misconfigured(
        "TIMESTAMP_MALFORMED",
        primary,
        hint="write it in ISO 8601 with its zone, for example 2026-11-20T14:30:00+00:00",
    )


def _canonical(position: str) -> str:
    """One spelling for each LSN; a position of another kind is compared as it is written."""
    try:
        return str(Lsn.parse(position))
    except Misconfigured:
        return position.strip()


def _none(marks: Sequence[Mark], primary: str) -> Misconfigured:
    if not marks:
        return Misconfigured("LAKE_NO_MARK", primary, hint="headrace status shows how far the copy is")
    first, last = marks[0], marks[-1]
    return Misconfigured(
        "LAKE_NO_MARK",
        primary,
        detail=f"kept are the epochs {first.epoch} to {last.epoch}, "
        f'positions "{first.frontier}" to "{last.frontier}"',
        hint="name one of the kept marks: headrace status --json lists them",
    )
