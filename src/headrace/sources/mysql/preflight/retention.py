"""Preflight of what the server keeps: how long its log lasts, and what a power cut may take from it.

A mirror acknowledges nothing at the server: the log is removed by its age, whoever still needs it.

lost commits  With sync_binlog other than 1 a power cut may take the newest commits out of the log. The server
              then gives their GTIDs to other transactions: to us these are known already. With
              innodb_flush_log_at_trx_commit other than 1 the log keeps commits that the tables lost. Nothing
              in the stream betrays either. They are warnings, since the server's process may be killed at any
              point without harm; only its machine must not lose power.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight.variables import ON, Variables, remark, setting

NAMES = (
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "expire_logs_days",
    "max_binlog_total_size",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
)
_DAY = 86400
_KEPT = 7 * _DAY
# What a copy reads per second, for an estimate.
_COPY_RATE = 50_000_000


def check_retention(flavour: Flavour, variables: Variables, copy_bytes: int) -> Iterator[Finding]:
    """Find out whether the log outlasts the copy, and a day in which nobody mirrors."""
    seconds = lasts(variables)
    copy_seconds = copy_bytes / _COPY_RATE
    if seconds is not None and seconds < max(_DAY, 2 * copy_seconds):
        mend = (setting(flavour, "binlog_expire_logs_seconds", _KEPT),)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_RETENTION",
                f"the server removes its log after {long(seconds)}: "
                "a mirror that rests for longer has to be reconciled",
                detail=f"copying the tables takes about {long(copy_seconds)}, at 50 MB/s",
                hint=f"{hint_of(mend)}{remark(flavour)}",
            ),
            mend=mend,
        )
    if int(variables.get("max_binlog_total_size", 0)):
        mend = (setting(flavour, "max_binlog_total_size", 0),)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_RETENTION",
                "max_binlog_total_size is set: the server removes its log whoever still needs it",
                hint=f"{hint_of(mend)}{remark(flavour)}",
            ),
            mend=mend,
        )


def lasts(variables: Variables) -> float | None:
    """The seconds after which the server removes a file of the log; None: it never does."""
    if variables.get("binlog_expire_logs_auto_purge", ON) != ON:
        return None
    seconds = float(variables.get("binlog_expire_logs_seconds", 0))
    return seconds or float(variables.get("expire_logs_days", 0)) * _DAY or None


def long(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"


def check_durability(flavour: Flavour, variables: Variables) -> Iterator[Finding]:
    """Find out whether the server still has, after a power cut, all that it sent."""
    weak = [name for name in ("sync_binlog", "innodb_flush_log_at_trx_commit") if variables[name] != "1"]
    if weak:
        # Not to be run unread: each commit of the application then waits for the disk.
        statements = tuple(setting(flavour, name, 1) for name in weak)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_POWER_CUT",
                f"{' and '.join(f'{name} is {variables[name]}' for name in weak)}: a power cut at the server "
                "may take back commits that the mirror has, and nothing says so afterwards",
                hint=f"{hint_of(statements)}{remark(flavour)}; "
                "else headrace verify after every power cut of the server",
            ),
        )
