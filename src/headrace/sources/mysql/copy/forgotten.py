"""A domain that MariaDB has forgotten: what it counts as executed lies before what its stream has brought."""

from __future__ import annotations

from headrace.core.position import Position
from headrace.sources.mysql.binlog_position import MariadbProgress, parse
from headrace.sources.mysql.session.log_end import domain_forgotten


def refuse_forgetful(executed_until: Position, received_until: Position | None) -> None:
    """Refuse a server that does not count a domain that its stream has brought: its times are too small.

    Of MySQL nothing is told by this: a transaction may be sent before it counts as executed.
    """
    forgotten = (
        set() if received_until is None else _domains(received_until.text) - _domains(executed_until.text)
    )
    if forgotten:
        raise domain_forgotten(forgotten)


def _domains(text: str) -> set[int]:
    progress = parse(text)
    return {gtid.domain for gtid in progress.read.newest} if isinstance(progress, MariadbProgress) else set()
