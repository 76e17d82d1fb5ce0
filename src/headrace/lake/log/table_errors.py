"""Errors of a lake table, and the way in which what delta-rs refuses becomes one of them."""

from __future__ import annotations

from deltalake.exceptions import DeltaError

from headrace.core.errors import Definite, Transient


class TableRefusals:
    """Raises what delta-rs refuses while reading as one of the families."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DeltaError | OSError):
            raise failed_error(self.folder, error) from error


def failed_error(folder: str, error: Exception) -> Definite | Transient:
    if isinstance(error, DeltaError) and "json error" in str(error).lower():
        return unreadable_error(folder)
    return Transient(
        "LAKE_STORE",
        f'the lake table at "{folder}" could not be read or written',
        detail=type(error).__name__,
        hint="look at the store's health and network; the work resumes by itself",
    )


def foreign_settings_error(folder: str) -> Definite:
    return Definite(
        "LAKE_TABLE_SETTINGS",
        f'the lake table at "{folder}" has deletion vectors, and settings that another program made',
        hint="set its Delta properties and features back with that program; or mirror into a new lake",
    )


class TornLog(Definite):
    """A line of a table's log is torn."""


def unreadable_error(folder: str) -> TornLog:
    return TornLog(
        "LAKE_LOG_DAMAGED",
        f'the log of the lake table at "{folder}" holds half of a commit',
        hint="after a power cut headrace run mends the lake; else restore its _delta_log from a backup, "
        "or mirror into a new lake",
    )


def gone_error(folder: str, version: int) -> Definite:
    return Definite(
        "LAKE_VERSION_GONE",
        f'version {version} of the lake table at "{folder}" cannot be read any more',
        hint="read a later mark: headrace status lists those that are kept",
    )
