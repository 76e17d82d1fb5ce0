"""Say how long the server keeps its log, for `status`: it holds nothing for us, and removes it by its age.

Whoever needs what was removed has lost its position, and hears of that when it connects (`stream.dump`). So
there is nothing that might be too much, and all that can be said is how long the log lasts. Nothing is asked
that costs the server more than a look at its variables.
"""

from __future__ import annotations

from headrace.sources.contract.mirror import Health
from headrace.sources.mysql.preflight.retention import NAMES as RETENTION
from headrace.sources.mysql.preflight.retention import lasts, long
from headrace.sources.mysql.preflight.variables import Variables, variables
from headrace.sources.mysql.session.statements import MysqlConnection

_POSITIONS = ("gtid_executed", "gtid_purged", "gtid_binlog_pos")


def health(session: MysqlConnection) -> Health:
    """Say how long the log lasts, how far it is, and (MySQL) what of it is gone."""
    known = variables(session, [*RETENTION, *_POSITIONS])
    seconds = lasts(known)
    figures = {
        "keeps_seconds": seconds,
        "keeps_bytes": int(known.get("max_binlog_total_size", 0)) or None,
        **{name: _one_line(known, name) for name in _POSITIONS if name in known},
    }
    kept = "until it is told otherwise" if seconds is None else f"for {long(seconds)}"
    return Health(figures, (f"the server keeps its log {kept}, and holds none of it for us",))


def _one_line(known: Variables, name: str) -> str:
    return "".join(known[name].split())
