"""Preflight of the log: whether it holds every change, whole, under names that last.

A variable of the server is what new sessions begin with. One that is open keeps its own, and a session may
set some of them for itself, so the stream checks each event again; this is about what is set for all.
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.errors import Misconfigured
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.mysql.flavour import Flavour
from headrace.sources.mysql.preflight.variables import OFF, ON, Variables, remark, setting

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
    """Everything about the log that holds for all tables."""
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
        return  # nothing of the rest is in force
    yield from _rows(flavour, variables)
    yield from _names(flavour, variables)
    yield from _order(variables)


def _rows(flavour: Flavour, known: Variables) -> Iterator[Finding]:
    """Find out whether whole rows are logged, and their columns described."""
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


# By steps, each of which waits for nobody; the servers of one history go through them together.
_GTID_STEPS = ("OFF", "OFF_PERMISSIVE", "ON_PERMISSIVE", "ON")


def _names(flavour: Flavour, known: Variables) -> Iterator[Finding]:
    """Find out whether each transaction has a name that is the same on all servers of its history."""
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
    """GTIDs of MySQL. The statements are for a person: with them some of the application's own fail."""
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
                "SET PERSIST enforce_gtid_consistency = WARN writes into the server's log which those are",
                hint=hint_of(tuple(steps)),
            ),
        )


def _order(known: Variables) -> Iterator[Finding]:
    """Find out whether transactions become visible in the order of the log, and no other server makes any."""
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
