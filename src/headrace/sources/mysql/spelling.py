"""The spelling of MySQL's and MariaDB's positions, for readers of a lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Misconfigured
from headrace.core.position import STEP, Position
from headrace.sources.mysql.position import MysqlProgress, MysqlTimeline, count, holds, parse

if TYPE_CHECKING:
    import pyarrow as pa


class GtidSpelling:
    """The spelling of both (`core.position.Spelling`): sets of GTIDs, and MariaDB's positions by domain.

    A text gives a time, as if it were a position of the history in question; `agree` and `covering` find out
    if it is. A time gives no text, except for the position that is known already: only the server knows which
    transaction came when.
    """

    def reads(self, text: str) -> bool:
        try:
            parse(text)
        except Misconfigured:
            return False
        return bool(text.strip())

    def time(self, text: str, near: Position) -> int | None:
        return MysqlTimeline(_base(near)).time(count(text))

    def text(self, time: int, near: Position) -> str | None:
        return near.text if time == near.time else None

    def agree(self, text: str, other: str) -> bool:
        return holds(text, other) or holds(other, text)

    def covering(self, text: str) -> Callable[[Any], pa.BooleanArray]:
        progress = parse(text)
        return progress.brought_gtids.mask if isinstance(progress, MysqlProgress) else progress.read.mask


def _base(near: Position) -> int:
    # Marks of tables that were copied anew lie a little behind the place in their text.
    return near.time // STEP * STEP - STEP * count(near.text)


SPELLING = MARIADB_SPELLING = GtidSpelling()
