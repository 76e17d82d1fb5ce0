"""Preflight of the log: does it hold every change, with whole rows, under lasting names? How long does it
last?

New sessions begin with the server's variables. An open session keeps its own values, and a session may set
some of them for itself. So the stream checks each event again; these checks are about the values for all.

A mirror acknowledges nothing at the server: the server removes its log by age, even if a mirror still needs
it.

lost commits  With sync_binlog other than 1 a power cut may remove the newest commits from the log. The server
              then assigns their GTIDs to other transactions, which seem known to us already. With
              innodb_flush_log_at_trx_commit other than 1 the log keeps commits that the tables lost. The
              stream shows neither. Both are warnings, since killing the server's process is harmless at any
              point; only its machine must not lose power.

`health` tells `status` how long the server keeps its log. A mirror that needs removed log has lost its
position, and learns that when it connects (`stream.dump`). So the server never holds too much for us.
`health` costs the server only a look at its variables.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.contract.mirror import Health
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight.variables import OFF, ON, Variables, remark, setting, variables
from headrace.sources.mysql.session.statements import MysqlConnection

NAMES = (
    "log_bin",
    "server_id",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "binlog_checksum",
    "gtid_mode",
    "enforce_gtid_consistency",
    "gtid_strict_mode",
    "binlog_order_commits",
    "wsrep_on",
)
_OPEN_SESSIONS = "sessions that are open keep what they have: let the application connect anew"


def check_binlog(flavour: Flavour, variables: Variables) -> Iterator[Finding]:
    """Check everything about the log that concerns all tables."""
    if variables["log_bin"] != ON:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_BINLOG_OFF",
                "the server keeps no binlog: nobody can follow its changes",
                hint="write log_bin in the section [mysqld] of the server's configuration file, "
                "then restart the server",
            ),
        )
        return  # without a log the rest does not matter
    yield from _rows(flavour, variables)
    yield from _names(flavour, variables)
    yield from _order(variables)


def _rows(flavour: Flavour, known: Variables) -> Iterator[Finding]:
    """Check that whole rows are logged, with descriptions of their columns."""
    if known["binlog_format"] != "ROW":
        mend = (setting(flavour, "binlog_format", "ROW"),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_BINLOG_FORMAT",
                f"binlog_format is {known['binlog_format']}, changes can be followed as rows only",
                hint=f"{hint_of(mend)}{remark(flavour)}; {_OPEN_SESSIONS}",
            ),
            mend=mend,
        )
    if known["binlog_row_image"] != "FULL":
        mend = (setting(flavour, "binlog_row_image", "FULL"),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_ROW_IMAGE",
                f"binlog_row_image is {known['binlog_row_image']}, a mirror needs whole rows",
                hint=f"{hint_of(mend)}{remark(flavour)}; {_OPEN_SESSIONS}",
            ),
            mend=mend,
        )
    if known["binlog_row_metadata"] != "FULL":
        mend = (setting(flavour, "binlog_row_metadata", "FULL"),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_ROW_METADATA",
                f"binlog_row_metadata is {known['binlog_row_metadata']}: "
                "the log does not say what the columns of a row are",
                hint=f"{hint_of(mend)}{remark(flavour)}",
            ),
            mend=mend,
        )
    if known.get("binlog_row_value_options"):
        mend = (setting(flavour, "binlog_row_value_options", "''"),)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_JSON_PARTIAL",
                f"binlog_row_value_options is {known['binlog_row_value_options']}: "
                "of a changed JSON document the log may hold only what became other",
                hint=f"{hint_of(mend)}; {_OPEN_SESSIONS}",
            ),
            mend=mend,
        )
    if known["binlog_checksum"] == "NONE":
        mend = (setting(flavour, "binlog_checksum", "CRC32"),)
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_CHECKSUM_OFF",
                "binlog_checksum is NONE: damage on the way to us would not be noticed",
                hint=f"{hint_of(mend)}{remark(flavour)}",
            ),
            mend=mend,
        )


# Steps that wait for nobody; all servers of one history must take each step together.
_GTID_STEPS = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def _names(flavour: Flavour, known: Variables) -> Iterator[Finding]:
    """Check that each transaction has a name that is the same on all servers of its history."""
    if flavour is Flavour.MYSQL:
        yield from _gtids(known)
    elif known["gtid_strict_mode"] != ON:
        mend = (setting(flavour, "gtid_strict_mode", ON),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_GTID_STRICT",
                "gtid_strict_mode is OFF: numbers of transactions may come twice, or in any order",
                hint=f"{hint_of(mend)}{remark(flavour)}",
            ),
            mend=mend,
        )
    if known["server_id"] == "0":
        mend = (setting(flavour, "server_id", 1),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_SERVER_ID",
                "server_id is 0: the server sends its log to nobody",
                hint=f"{hint_of(mend)}, or another number that none of its replicas has{remark(flavour)}",
            ),
            mend=mend,
        )


def _gtids(known: Variables) -> Iterator[Finding]:
    """Check MySQL's GTIDs. A person must switch them on: some of the application's statements fail then."""
    mode = known["gtid_mode"]
    steps = [] if known["enforce_gtid_consistency"] == ON else ["SET PERSIST enforce_gtid_consistency = ON"]
    steps += [f"SET PERSIST gtid_mode = {step}" for step in _GTID_STEPS[_GTID_STEPS.index(mode) + 1 :]]
    if steps:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_GTID_MODE",
                f"gtid_mode is {mode} and enforce_gtid_consistency is {known['enforce_gtid_consistency']}: "
                "a place in the log would be of this server and its files alone",
                detail="transactions that change tables of InnoDB and of another engine will be refused; "
                "with SET PERSIST enforce_gtid_consistency = WARN the server first lists them in its log",
                hint=hint_of(tuple(steps)),
            ),
        )


def _order(known: Variables) -> Iterator[Finding]:
    """Check that transactions become visible in the order of the log, and that no other server adds any."""
    if known.get("binlog_order_commits", ON) != ON:
        mend = (setting(Flavour.MYSQL, "binlog_order_commits", ON),)
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_COMMIT_ORDER",
                "binlog_order_commits is OFF: transactions become visible in another order than the log's",
                hint=hint_of(mend),
            ),
            mend=mend,
        )
    if known.get("wsrep_on", OFF) != OFF:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_CLUSTER",
                "the server is a node of a Galera cluster: a table lock does not hold off writes of others",
                hint="give the address of an asynchronous replica of the cluster",
            ),
        )


RETENTION = (
    "binlog_expire_logs_seconds",
    "binlog_expire_logs_auto_purge",
    "expire_logs_days",
    "max_binlog_total_size",
    "sync_binlog",
    "innodb_flush_log_at_trx_commit",
)
_DAY = 86400
_KEPT = 7 * _DAY
# Bytes per second of a copy, for an estimate.
_COPY_RATE = 50_000_000


def check_retention(flavour: Flavour, variables: Variables, copy_bytes: int) -> Iterator[Finding]:
    """Check that the log outlasts the copy, and a day without a run."""
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
    """The seconds after which the server removes a file of the log; None if it never does."""
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
    """Check that after a power cut the server still has everything that it sent."""
    weak = [name for name in ("sync_binlog", "innodb_flush_log_at_trx_commit") if variables[name] != "1"]
    if weak:
        # A person must decide this: each commit of the application then waits for the disk.
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


POSITIONS = ("gtid_executed", "gtid_purged", "gtid_binlog_pos")


def health(session: MysqlConnection, *, is_hosted: bool) -> Health:
    """Report how long the log lasts, its end, and (MySQL) the purged part.

    `is_hosted`: a cloud keeps the log otherwise than its settings say.
    """
    known = variables(session, [*RETENTION, *POSITIONS])
    seconds = None if is_hosted else lasts(known)
    figures = {
        "keeps_seconds": seconds,
        "keeps_bytes": int(known.get("max_binlog_total_size", 0)) or None,
        **{name: _one_line(known, name) for name in POSITIONS if name in known},
    }
    kept = "until it is told otherwise" if seconds is None else f"for {long(seconds)}"
    kept = "as long as its cloud decides" if is_hosted else kept
    return Health(figures, (f"the server keeps its log {kept}, and holds none of it for us",))


def _one_line(known: Variables, name: str) -> str:
    return "".join(known[name].split())
