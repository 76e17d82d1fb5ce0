"""The coded errors of a dump and of a binlog's events. None quotes a statement or a row.

A server that can't go on with a dump sends the same error number for almost every reason, and gives the
reason in words. These hold names of files and sets of GTIDs, and no values. A few of the words identify the
reasons known here.
"""

from __future__ import annotations

from headrace.core.errors import (
    Definite,
    HeadraceError,
    Misconfigured,
    PositionDoubtful,
    PositionLost,
    Transient,
)
from headrace.sources.mysql.session.packets import ServerError, connection_lost
from headrace.sources.mysql.session.refusals import refused_error


class EventDamaged(Transient, PositionDoubtful):
    """An event is not as the server wrote it: damaged on the way, or in its file."""

    codes = ("MY_EVENT_DAMAGED",)


class EventUnknown(Misconfigured, PositionDoubtful):
    """The event has a kind that is not known here, and must not be skipped."""

    codes = ("MY_EVENT_UNKNOWN",)


class BinlogLost(Definite, PositionLost):
    """The transactions behind our position can't be read by GTIDs: they are gone, or have none."""

    codes = ("MY_TRANSACTION_ANONYMOUS", "MY_INCIDENT", "MY_GTID_DISORDERED")


def damaged_error(detail: str) -> EventDamaged:
    return EventDamaged(
        "MY_EVENT_DAMAGED",
        "an event of the binlog is damaged",
        detail=detail,
        hint="it is read again; if that does not help, the binlog file is damaged: headrace run --reconcile",
    )


def unknown_error(kind: int) -> EventUnknown:
    return EventUnknown(
        "MY_EVENT_UNKNOWN",
        "the binlog has an event of a kind that this version of headrace does not know",
        detail=f"kind {kind}",
        hint="use a newer version of headrace; or go on behind it: headrace run --reconcile",
    )


def anonymous(detail: str) -> BinlogLost:
    return BinlogLost(
        "MY_TRANSACTION_ANONYMOUS",
        "the binlog has a transaction that cannot be followed by its GTID",
        detail=detail,
        hint="SET GLOBAL gtid_mode = ON; then: headrace run --reconcile",
    )


def incident() -> BinlogLost:
    return BinlogLost(
        "MY_INCIDENT",
        "the server says that its binlog lacks changes",
        hint="the server's error log says why; headrace run --reconcile",
    )


def out_of_order(detail: str) -> BinlogLost:
    return BinlogLost(
        "MY_GTID_DISORDERED",
        "the binlog has GTIDs in an order that cannot be followed",
        detail=detail,
        hint="on MariaDB: SET GLOBAL gtid_strict_mode = ON; then: headrace run --reconcile",
    )


def disorder(detail: str) -> Definite:
    return Definite(
        "MY_STREAM_DISORDERED",
        "the binlog breaks the rules of its format",
        detail=detail,
        hint="report it with the server's version",
    )


_CANNOT_READ = frozenset({29, 1236, 1945, 1950, 1951, 1955, 1957, 4052})
# Words of errors about damaged events. Servers send larger events than they accept.
_DAMAGED = ("checksum", "corrupt", "bogus", "truncated", "exceeded max_allowed_packet")


class PositionGone(Definite, PositionLost):
    """The binlog behind our position can't be read: it is purged, or the server never had it."""

    codes = ("MY_BINLOG_PURGED", "MY_SERVER_BEHIND", "MY_HISTORY_CHANGED")


class GtidsOff(Misconfigured, PositionDoubtful):
    """The server gives its transactions no names."""

    codes = ("MY_GTID_MODE_OFF",)


class BinlogUnreadable(Transient, PositionDoubtful):
    """The server cannot read its own binlog."""

    codes = ("MY_BINLOG_UNREADABLE",)


def purged_error(detail: str) -> PositionGone:
    return PositionGone(
        "MY_BINLOG_PURGED",
        "the server has purged binlog that was not read yet",
        detail=detail,
        hint="headrace run --reconcile; then raise binlog_expire_logs_seconds (MariaDB: expire_logs_days) "
        "or run headrace without long breaks",
    )


def prepared_purged(gtids: str) -> PositionGone:
    """The error if the log with a prepared XA transaction's rows is purged: they are nowhere else."""
    return PositionGone(
        "MY_BINLOG_PURGED",
        "the server has purged binlog with rows of XA transactions that are prepared still",
        detail=f"they were prepared as {gtids}",
        hint="XA RECOVER lists them: end each with XA COMMIT or XA ROLLBACK, then headrace run --reconcile",
    )


def server_behind(detail: str) -> PositionGone:
    return PositionGone(
        "MY_SERVER_BEHIND",
        "the server lacks transactions that were received: it was set back, restored, or is another one",
        detail=detail,
        hint="headrace run --reconcile",
    )


def history_changed(count: int, again: int) -> PositionGone:
    """The error of a server that sent `count` transactions, and now sends `again` in their place."""
    return PositionGone(
        "MY_HISTORY_CHANGED",
        "the server has another history than when it was followed",
        detail=f"of {count} of its transactions it sends {again} again, or others",
        hint="it was set back, restored or replaced: headrace run --reconcile",
    )


def replaced_error(detail: str) -> PositionGone:
    """The error if other transactions stand where the last received ones stood."""
    return PositionGone(
        "MY_HISTORY_CHANGED",
        "the server has another history than when it was followed",
        detail=detail,
        hint="it was reset or set back (RESET MASTER, a restored volume): headrace run --reconcile",
    )


def gtids_off(mode: str) -> GtidsOff:
    return GtidsOff(
        "MY_GTID_MODE_OFF",
        "the server gives its transactions no GTIDs",
        detail=f"gtid_mode is {mode}",
        hint="SET GLOBAL gtid_mode = ON, step by step as its manual says; "
        "if it was off for a while: headrace run --reconcile",
    )


def lost_error(detail: str) -> Transient:
    return connection_lost(detail)


def refusal(error: ServerError) -> HeadraceError:
    """The coded error of a server's error in place of an event."""
    if error.number not in _CANNOT_READ:
        return refused_error(error)
    said = error.message.lower()
    detail = f"error {error.number}: {' '.join(error.message.split())[:500]}"
    if "same server" in said:
        return Transient(
            "MY_REPLICA_ID_TAKEN",
            "the server ended the dump in favour of another reader with the same id",
            detail=detail,
            hint="nothing to do: it is begun anew with another id",
        )
    if "anonymous" in said:
        return anonymous(detail)
    if "not in the master" in said or "more gtids" in said or "alternate" in said:
        return server_behind(detail)
    if "purged" in said or "could not find gtid state" in said or "could not find first log" in said:
        return purged_error(detail)
    if "impossible position" in said or "position > file size" in said:
        return replaced_error(detail)
    if any(word in said for word in _DAMAGED):
        return damaged_error(detail)
    return BinlogUnreadable(
        "MY_BINLOG_UNREADABLE",
        "the server cannot send its binlog",
        detail=detail,
        hint="its error log says why; if it stays so, go on behind it: headrace run --reconcile",
    )
