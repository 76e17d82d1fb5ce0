"""The policy after an error: the one place where reactions live.

    Definite, of a table     that table stops at its last exact mark; the others go on
    Definite, of the source  the source stops; nothing is lost, its slot keeps the stream
    Transient                back off and begin again at the exact position; no frontier moves
    Misconfigured            stop at once and print the hint; a right that this run had, and that was taken
                             away at the source, is waited for as for anything else there
    anything else            a bug: stop loudly

Raising code classifies (`core.errors`); it never knows what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, MaybeMisconfigured, RightWithheld, Transient
from headrace.lake.log.syncing import FencedOut
from headrace.spool.layout import SpoolSpoilt

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0

EXIT_CODES = {"misconfigured": 2, "definite": 3, "transient": 4}


@dataclass(frozen=True, slots=True)
class Patience:
    """The patience with transient errors: for ever in a service, for a while with `--once`."""

    attempts: int | None = None

    def pauses(self) -> Iterator[float]:
        """Seconds to wait before each further attempt."""
        pause, attempt = FIRST_PAUSE, 0
        while self.attempts is None or attempt < self.attempts:
            yield pause
            attempt += 1
            pause = min(pause * 2, LONGEST_PAUSE)


def retries(error: BaseException, *, has_answered: bool = True, was_admitted: bool = False) -> bool:
    """Tell whether the source begins again by itself after this error.

    A server that was never `met` is more likely mistyped than down, and one whose commits would wait for us
    is likely to be meant so: a person should look. Who was never `admitted` in this run has a person before
    him; a run that goes by itself is not ended for good by a right that is taken away and given back.
    """
    if isinstance(error, RightWithheld):
        return was_admitted
    return isinstance(error, Transient) and (has_answered or not isinstance(error, MaybeMisconfigured))


def disowns(error: BaseException) -> bool:
    """Tell whether the source turned out to be another process's: then its status is not ours to write."""
    return isinstance(error, FencedOut)


def spoils_the_spool(error: BaseException) -> bool:
    """Tell whether the spool must be forgotten before the next attempt: the source sends it all again."""
    return isinstance(error, SpoolSpoilt)


def exit_code(error: HeadraceError) -> int:
    """The exit code of a command that ends with this error."""
    return EXIT_CODES[error.family]
