"""The three families of errors, told apart by what happens next.

    Definite       true of the data or of a table: recorded in the lake at its position; that table
                   stops, the others go on
    Transient      the world (a lost connection, a full disk): back off and retry; no frontier moves
    Misconfigured  a person must act: stop at once, say what to type

What belongs to none of them is a bug and stops loudly. This module classifies; it never reacts:
reactions live in `headrace.pipeline.state.policy` alone.

A *condition* is an error that code reacts to: a class of its own, made from one of the three, that stands
where it is raised. Reactions ask for the class; codes are for people and tests. A condition says with which
codes it is raised, so that it is still itself after a way through a file or another process.

Every error carries a stable code (`PG_SLOT_LOST`), a primary line in lower case without a full stop,
an optional detail, and a hint that says what to type. Codes are listed in `docs/errors.md`; a test
reads the source and keeps that page complete. Nothing that is put in here may hold a password or a
value of a row (G8): names, positions, types and counts only.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import ClassVar

_CONDITIONS: dict[str, type[HeadraceError]] = {}  # by code


class HeadraceError(Exception):
    """The parent of all our errors; raise one of the three families, never this."""

    family: ClassVar[str]
    codes: ClassVar[tuple[str, ...]] = ()  # of a condition: all that it is raised with

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        _CONDITIONS.update(dict.fromkeys(vars(cls).get("codes", ()), cls))

    def __init__(self, code: str, primary: str, *, detail: str | None = None, hint: str) -> None:
        super().__init__(code, primary, detail, hint)
        self.code = code
        self.primary = primary
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        lines = [f"{self.code}: {self.primary}"]
        if self.detail:
            lines.append(f"detail: {self.detail}")
        lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        # Keyword-only arguments do not survive the default pickling, and errors travel
        # from Spark tasks to the driver.
        return (_rebuild, (type(self), self.code, self.primary, self.detail, self.hint))

    def adding(self, detail: str) -> HeadraceError:
        """Return this error with more detail; a detail that it has already is not repeated."""
        if self.detail and detail in self.detail:
            return self
        more = f"{self.detail}; {detail}" if self.detail else detail
        return _rebuild(type(self), self.code, self.primary, more, self.hint)


class Definite(HeadraceError):
    """True of the data: retrying cannot change it."""

    family = "definite"


class Transient(HeadraceError):
    """True of the world for the moment: retrying may succeed."""

    family = "transient"


class Misconfigured(HeadraceError):
    """True until a person acts."""

    family = "misconfigured"


class RightWithheld(Misconfigured):
    """True until a person gives us a right at the source; a run that had it waits for it."""


class MaybeMisconfigured(Transient):
    """True of the world for the moment; of a source that was never met, more likely a person's mistake."""


class PositionLost(HeadraceError):
    """The place in a source's stream is lost, whatever the family: a reconcile goes on from there."""


class PositionDoubtful(HeadraceError):
    """The place may be lost, or found again by a person: a reconcile goes on from there if one says so."""


class ShapeChanged(Definite):
    """A table is not what was recorded of it, or its stream lacks a value: as it is now, it may be copied."""

    codes: ClassVar[tuple[str, ...]] = (
        "TABLE_CHANGED",
        "TABLE_ALTERED",
        "TABLE_NOT_FOLLOWED",
        "TABLE_NOT_REWRITTEN",
        "RECONCILE_COLUMNS_CHANGED",
        "TOAST_LOST",
    )


class TableMissing(Definite):
    """A table is not at its source any more; it is taken up again where it is made again."""

    codes = ("RESYNC_TABLE_GONE",)


class RowsUntold(Definite):
    """Rows of a table changed, and the stream does not say how: a person has to end what does it.

    Of a table that is replaced by another one of its name those rows are gone, and that one may be copied.
    """


class LayoutUnknown(ShapeChanged):
    """The stream describes a table otherwise than the catalog does: if a copy does not mend it, none will."""

    codes = ("TABLE_LAYOUT_UNKNOWN",)


def is_fault(error: BaseException) -> bool:
    """Tell whether an error is a fault of ours: it has no code, and is not the world's (a disk, memory)."""
    return isinstance(error, Exception) and not isinstance(error, HeadraceError | OSError | MemoryError)


def place_of(fault: BaseException) -> str:
    """The type of an exception that is none of ours, and where it was raised; nothing that it says."""
    frames = traceback.extract_tb(fault.__traceback__)[-1:]
    return "".join([type(fault).__name__, *(f" in {each.name}, line {each.lineno}" for each in frames)])


_FAMILIES: dict[str, type[HeadraceError]] = {
    kind.family: kind for kind in (Definite, Transient, Misconfigured)
}


def _rebuild(
    kind: type[HeadraceError], code: str, primary: str, detail: str | None, hint: str
) -> HeadraceError:
    return kind(code, primary, detail=detail, hint=hint)


def parts_of(error: HeadraceError) -> dict[str, str | None]:
    """The error as it is written to status files, the catalog and `--json` output (`core.records`)."""
    return {
        "family": error.family,
        "code": error.code,
        "primary": error.primary,
        "detail": error.detail,
        "hint": error.hint,
    }


def error_of(record: Mapping[str, str | None]) -> HeadraceError:
    """Read what `parts_of` makes."""
    code, family = str(record["code"]), _FAMILIES[str(record["family"])]
    condition = _CONDITIONS.get(code, family)
    kind = condition if issubclass(condition, family) else family
    return kind(code, str(record["primary"]), detail=record["detail"], hint=str(record["hint"]))
