"""The coded errors of a binlog's events. None holds any of a statement or of a row."""

from __future__ import annotations

from headrace.core.errors import Definite, Misconfigured, PositionDoubtful, PositionLost, Transient


class EventDamaged(Transient, PositionDoubtful):
    """An event is not as the server wrote it: broken on the way, or in its file."""

    codes = ("MY_EVENT_DAMAGED",)


class EventUnknown(Misconfigured, PositionDoubtful):
    """An event of a kind that is not known here, and that may not be passed over."""

    codes = ("MY_EVENT_UNKNOWN",)


class BinlogLost(Definite, PositionLost):
    """The transactions behind our place can't be had by GTIDs: they are gone, or were never logged so."""

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
