"""Synchronous standbys, and why we are never one.

With `synchronous_standby_names` a commit waits until standbys with these names have flushed it. The server
knows a standby only by the name of its walsender's connection, and logical walsenders count. With `*`, which
matches any name, our receiver would be one. It reports "flushed" when the lake holds a transaction durably.
So every commit of the application would wait for a mark, in a first copy for hours. To report it earlier
would lose data.

So no stream begins while the setting names us (`slot_stream`), and preflight says so before anything is made.
A run that meets a new setting disconnects (`pipeline.loop`): the slot keeps everything, and nobody waits for
us. The run comes back by itself once the setting has changed, since a cluster manager may use `*` only while
no standby is up. No connection name escapes `*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.errors import MaybeMisconfigured
from headrace.core.names import quote_identifier
from headrace.sources.postgres.session.statements import Session, query

OURS = "headrace "  # how the names of all our connections begin
ANY_NAME = "*"
# The setting, and the walsenders that may be meant by it: physical ones, and logical ones that are not ours.
ASK = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN ''
            ELSE pg_catalog.current_setting('synchronous_standby_names') END,
       (SELECT pg_catalog.string_agg(DISTINCT r.application_name, E'\\n')
          FROM pg_catalog.pg_stat_replication r
          LEFT JOIN pg_catalog.pg_replication_slots s ON s.active_pid = r.pid
         WHERE s.slot_type IS DISTINCT FROM 'logical' AND r.application_name NOT LIKE 'headrace %'
           AND r.application_name NOT LIKE 'pg_basebackup%')
"""
_TOKEN = re.compile(r'"((?:[^"]|"")*)"|([^\s,()"]+)')
_COUNTED = re.compile(r"\s*(?:(FIRST|ANY)\s+)?(\d+)\s*\((.*)\)\s*\Z", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class StandbyNames:
    """The parsed setting."""

    method: str  # "FIRST", "ANY", or nothing
    number: int
    names: tuple[str, ...]

    @classmethod
    def parse(cls, setting: str) -> StandbyNames:
        counted = _COUNTED.match(setting)
        text = counted[3] if counted else setting
        names = (m[2] if m[1] is None else m[1].replace('""', '"') for m in _TOKEN.finditer(text))
        method = (counted[1] or "").upper() if counted else ""
        return cls(method, int(counted[2]) if counted else 1, tuple(names))

    @property
    def ours(self) -> tuple[str, ...]:
        """Find the names that a connection of ours may have."""
        return tuple(name for name in self.names if name == ANY_NAME or name.lower().startswith(OURS))

    def without_ours(self, standbys: Iterable[str]) -> str:
        """The setting that names the standbys, and no connection of ours."""
        names = [name for name in self.names if name not in self.ours]
        if ANY_NAME in self.names:
            known = {name.lower() for name in names}
            names += [name for name in standbys if name.lower() not in known]
        listed = ", ".join(quote_identifier(name) for name in names)
        if not names or (not self.method and self.number == 1):
            return listed
        return f"{self.method or 'FIRST'} {min(self.number, len(names))} ({listed})"


def statements(setting: str, standbys: Iterable[str]) -> tuple[str, ...]:
    """The statements that take us out of the setting."""
    named = StandbyNames.parse(setting).without_ours(standbys).replace("'", "''")
    return (
        f"ALTER SYSTEM SET synchronous_standby_names = '{named}'",
        "SELECT pg_reload_conf()",
    )


def refuse(connection: Session) -> None:
    """Raise if commits of this server would wait for us."""
    ((setting, standbys),) = query(connection, ASK)
    error = refusal(setting, standbys)
    if error is not None:
        raise error


class Synchronous(MaybeMisconfigured):
    """Commits of the server would wait for us."""

    codes = ("PG_SYNCHRONOUS",)


def refusal(setting: str, standbys: str | None) -> Synchronous | None:
    """The error if commits of the server would wait for us, from the row that `ASK` returns."""
    if not StandbyNames.parse(setting).ours:
        return None
    known = sorted((standbys or "").split("\n")) if standbys else []
    advice = "" if known else "; no standby is connected: put the names of yours in there"
    return Synchronous(
        "PG_SYNCHRONOUS",
        "synchronous_standby_names names our connections: commits of the application would wait for the lake",
        detail=f"it is {setting}",
        hint="; ".join(statements(setting, known)) + advice,
    )
