"""Preflight of a server that is itself a replica, and of prepared transactions.

A replica's log has the changes that it applies only if it is configured so. MariaDB shows a replica's state
only to users with a privilege of its own (SLAVE MONITOR), which a mirror does not need. Without it, a server
that has ever replicated anything counts as a replica.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight.variables import ON, Variables, remark, setting, status
from headrace.sources.mysql.session.statements import MysqlConnection, query
from headrace.sources.shared.refusals import PrivilegeMissing

NAMES = (
    "log_slave_updates",
    "replica_preserve_commit_order",
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
    flavour, statuses = connection.release.flavour, _statuses(connection)
    if flavour is Flavour.MYSQL:
        yield from _commit_order(variables, replicating=any(map(_is_applying, statuses)))
    if variables["log_slave_updates"] != ON and (statuses or variables.get("gtid_slave_pos")):
        yield _updates_unlogged(flavour)
    if variables.get("slave_run_triggers_for_rbr") == "YES":
        yield _triggers_unlogged()
    for each in statuses:
        yield from _replica(flavour, each)


def _statuses(connection: MysqlConnection) -> Sequence[Status]:
    """The replications that are configured on the server; none also if we may not see them."""
    mariadb = connection.release.is_mariadb
    try:
        return status(connection, "SHOW ALL SLAVES STATUS" if mariadb else "SHOW REPLICA STATUS")
    except PrivilegeMissing:
        return []


def _is_applying(known: Status) -> bool:
    return _of(known, "SQL_Running") != "No"


def _of(known: Status, name: str) -> str:
    """One value of a status, by the part of its name that all servers share."""
    return next(known[key] for key in (f"Replica_{name}", f"Slave_{name}") if key in known)


def _commit_order(known: Variables, *, replicating: bool) -> Iterator[Finding]:
    """Check every MySQL server: it may become a replica later, and still be our source."""
    if known["replica_preserve_commit_order"] == ON:
        return
    mend: tuple[str, ...] = (setting(Flavour.MYSQL, "replica_preserve_commit_order", ON),)
    if replicating:
        mend = ("STOP REPLICA SQL_THREAD", *mend, "START REPLICA SQL_THREAD")
    yield Finding(
        Level.ERROR,
        Misconfigured(
            "MY_REPLICA_ORDER",
            "replica_preserve_commit_order is OFF: a replica shows states that its source never had",
            hint=hint_of(mend),
        ),
        mend=mend,
    )


def _updates_unlogged(flavour: Flavour) -> Finding:
    """The finding of a replica that logs no changes. On MariaDB only the configuration file mends it."""
    mend = ("SET PERSIST_ONLY log_replica_updates = ON",) if flavour is Flavour.MYSQL else ()
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


def _replica(flavour: Flavour, known: Status) -> Iterator[Finding]:
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
        start = "START ALL SLAVES" if flavour is Flavour.MARIADB else "START REPLICA"
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
