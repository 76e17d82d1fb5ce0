"""Preflight of a server that is itself a replica, and of prepared transactions.

A replica's log has the changes that it applies only if it is configured so. MariaDB shows a replica's state
only to users with a privilege of its own (SLAVE MONITOR), which a mirror does not need. Without it, a server
that has ever replicated anything counts as a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.flavour import Flavour, Release
from headrace.sources.mysql.preflight.variables import ON, Variables, remark, setting, status
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.shared.refusals import PrivilegeMissing

_ORDER, _WORKERS = "preserve_commit_order", "parallel_type"
NAMES = (
    "log_slave_updates",
    "log_replica_updates",
    f"replica_{_ORDER}",
    f"slave_{_ORDER}",
    f"replica_{_WORKERS}",
    f"slave_{_WORKERS}",
    "gtid_slave_pos",
    "slave_run_triggers_for_rbr",
)
_FILTERS = ("Binlog_Do_DB", "Binlog_Ignore_DB")
Status = Mapping[str, str]


def check_filters(connection: MysqlConnection) -> Iterator[Finding]:
    """Refuse filters of the log: they leave out changes by the database that a session happens to use."""
    rows = status(connection, connection.release.words.log_status)
    filters = [f"{name.lower()} = {row[name]}" for row in rows for name in _FILTERS if row.get(name)]
    if filters:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "MY_BINLOG_FILTERED",
                "the server leaves databases out of its log; a TRUNCATE or ALTER made from one of them "
                "would be missed, whatever table it is of",
                detail="; ".join(filters),
                hint="remove binlog-do-db and binlog-ignore-db from the server's configuration, "
                "then restart the server",
            ),
        )


def check_replication(connection: MysqlConnection, variables: Variables) -> Iterator[Finding]:
    """Check everything that matters if the server is a replica."""
    release, statuses = connection.release, _statuses(connection)
    if not release.is_mariadb:
        yield from _commit_order(release, variables, replicating=any(map(_is_applying, statuses)))
    if variables[release.words.log_updates] != ON and (statuses or variables.get("gtid_slave_pos")):
        yield _updates_unlogged(release)
    if variables.get("slave_run_triggers_for_rbr") == "YES":
        yield _triggers_unlogged()
    for each in statuses:
        yield from _replica(release, each)


def _statuses(connection: MysqlConnection) -> Sequence[Status]:
    """The replications that are configured on the server; none also if we may not see them."""
    try:
        return status(connection, connection.release.words.replica_status)
    except PrivilegeMissing:
        return []


def _is_applying(known: Status) -> bool:
    return _of(known, "SQL_Running") != "No"


def _of(known: Status, name: str) -> str:
    """One value of a status, by the part of its name that all servers share."""
    return next(known[key] for key in (f"Replica_{name}", f"Slave_{name}") if key in known)


def _commit_order(release: Release, known: Variables, *, replicating: bool) -> Iterator[Finding]:
    """Check every MySQL server: it may become a replica later, and still be our source."""
    word, begin = release.words.replica, release.words.replica_variables
    if known[begin + _ORDER] == ON:
        return
    mend: tuple[str, ...] = (setting(Flavour.MYSQL, begin + _ORDER, ON),)
    if known.get(begin + _WORKERS) == "DATABASE":  # the default before MySQL 8.0.27; it keeps no order
        mend = (setting(Flavour.MYSQL, begin + _WORKERS, "LOGICAL_CLOCK"), *mend)
    if replicating:
        mend = (f"STOP {word} SQL_THREAD", *mend, f"START {word} SQL_THREAD")
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "MY_REPLICA_ORDER",
            f"{begin}{_ORDER} is OFF: a replica shows states that its source never had",
            hint=hint_of(mend),
        ),
        mend=mend,
    )


def _updates_unlogged(release: Release) -> Finding:
    """The finding of a replica that logs no changes. On MariaDB only the configuration file mends it."""
    mend = () if release.is_mariadb else (f"SET PERSIST_ONLY {release.words.log_updates} = ON",)
    hint = hint_of(mend) or "write log_slave_updates in the section [mysqld] of its configuration file"
    return Finding(
        Level.ERROR,
        Misconfigured(
            "MY_REPLICA_UPDATES",
            "the server is a replica and does not write into its log what it replicates",
            hint=f"{hint}; then restart the server",
        ),
        mend=mend,
        restart=bool(mend),
    )


def _triggers_unlogged() -> Finding:
    """The finding of every MariaDB server whose replica triggers may change rows unlogged."""
    mend = (setting(Flavour.MARIADB, "slave_run_triggers_for_rbr", "LOGGING"),)
    return Finding(
        Level.ERROR,
        Misconfigured(
            "MY_REPLICA_TRIGGERS",
            "slave_run_triggers_for_rbr is YES: no replica promises to log what its triggers change then",
            detail="LOGGING runs them and promises it; 10.11 does so under YES too, but its manual denies it",
            hint=f"{hint_of(mend)}{remark(Flavour.MARIADB)}",
        ),
        mend=mend,
    )


def _replica(release: Release, known: Status) -> Iterator[Finding]:
    """The findings on a replication that is delayed on purpose, is stopped, or filters changes."""
    delay = int(known.get("SQL_Delay") or 0)
    if delay:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_REPLICA_DELAYED",
                f"the server is a replica that stays {delay} s behind on purpose, and so will the mirror",
                hint="give the address of its source, or of another replica",
            ),
        )
    if "No" in (_of(known, "IO_Running"), _of(known, "SQL_Running")):
        start = "START ALL SLAVES" if release.is_mariadb else f"START {release.words.replica}"
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_REPLICA_STOPPED",
                "the server is a replica whose replication is stopped: nothing new comes to the mirror",
                hint=f"see what stopped it, then {start}",
            ),
        )
    filters = [f"{name.lower()} = {value}" for name, value in known.items() if _filters(name) and value]
    if filters:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_REPLICA_FILTERED",
                "the server is a replica that leaves something out: another server of its history has other "
                "tables under the same GTIDs",
                detail="; ".join(filters),
                hint="never switch this mirror to a server that has other filters",
            ),
        )


def _filters(name: str) -> bool:
    return name.lower().startswith(
        ("replicate_do", "replicate_ignore", "replicate_wild", "replicate_rewrite")
    )


def check_prepared(connection: MysqlConnection) -> Iterator[Finding]:
    """Report prepared transactions: their rows are locked until somebody ends them."""
    try:
        rows = query(connection, "XA RECOVER")
    except PrivilegeMissing:
        return  # MySQL requires XA_RECOVER_ADMIN for it
    if rows:
        yield Finding(
            Level.WARNING,
            Misconfigured(
                "MY_XA_PREPARED",
                f"{len(rows)} XA transactions are prepared and not ended: "
                "the copy of a table that one of them wrote waits for its end",
                hint="XA RECOVER lists them; end each with XA COMMIT or XA ROLLBACK",
            ),
        )
