"""A domain that MariaDB has forgotten: what it counts as executed lies before what its stream has brought.

Called by whoever takes a moment that is to be joined to the stream.
"""

from __future__ import annotations

from headrace.core.errors import Definite, PositionLost
from headrace.core.position import Position
from headrace.sources.mysql.binlog_position import MariadbProgress, parse


class DomainForgotten(Definite, PositionLost):
    """The server has forgotten a domain of its log that was received from it."""

    codes = ("MY_DOMAIN_FORGOTTEN",)


def refuse_forgetful(executed: Position, reached: Position | None) -> None:
    """Refuse a server that does not count a domain that its stream has brought: its times are too small.

    Of MySQL nothing is told by this: a transaction may be sent before it counts as executed.
    """
    forgotten = set() if reached is None else _domains(reached.text) - _domains(executed.text)
    if forgotten:
        raise DomainForgotten(
            "MY_DOMAIN_FORGOTTEN",
            "the server does not count a GTID domain any more that was received from it",
            detail="domains: " + ", ".join(map(str, sorted(forgotten))),
            hint="FLUSH BINARY LOGS DELETE_DOMAIN_ID has removed it, or the server was set back: "
            "headrace run --reconcile",
        )


def _domains(text: str) -> set[int]:
    progress = parse(text)
    return {gtid.domain for gtid in progress.read.newest} if isinstance(progress, MariadbProgress) else set()
