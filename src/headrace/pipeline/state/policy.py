"""The policy after an error: the one place where reactions live.

    Definite, of a table     that table stops at its last exact mark; the others go on
    Definite, of the source  the source stops; nothing is lost, its slot keeps the stream
    Transient                back off and begin again at the exact position; no frontier moves
    Misconfigured            stop at once and print the hint; but if the source revokes a privilege that this
                             run had, wait for it as after a transient error
    anything else            a bug: stop loudly

The code that raises an error classifies it (`core.errors`), and never knows what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headrace.core.errors import HeadraceError, MaybeMisconfigured, RightWithheld, Transient
from headrace.lake.log.durable import FencedOut
from headrace.spool.layout import SpoolSpoilt

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 15.0

EXIT_CODES = {"misconfigured": 2, "definite": 3, "transient": 4}


@dataclass(frozen=True, slots=True)
class Patience:
    """The patience with transient errors: without end in a service, limited with `--once`."""

    attempts: int | None = None

    def pauses(self) -> Iterator[float]:
        """Yield the seconds to wait before each further attempt."""
        pause, attempt = FIRST_PAUSE, 0
        while self.attempts is None or attempt < self.attempts:
            yield pause
            attempt += 1
            pause = min(pause * 2, LONGEST_PAUSE)


def retries(error: BaseException, *, has_answered: bool = True, was_admitted: bool = False) -> bool:
    """Tell whether the source begins again by itself after this error.

    Until the server `has_answered` once, stop at an error that may be a misconfiguration
    (`MaybeMisconfigured`), so that a person looks: an address that never answered is more likely mistyped
    than down, and a server whose commits would wait for us is probably configured so on purpose. Until this
    run `was_admitted`, stop at a missing privilege: somebody has just started the run. Later the run waits,
    because a revoked privilege may be granted again.
    """
    if isinstance(error, RightWithheld):
        return was_admitted
    return isinstance(error, Transient) and (has_answered or not isinstance(error, MaybeMisconfigured))


def disowns(error: BaseException) -> bool:
    """Tell whether another process owns the source: then this one must not write its status."""
    return isinstance(error, FencedOut)


def spoils_the_spool(error: BaseException) -> bool:
    """Tell whether to erase the spool before the next attempt: the source sends all of it again."""
    return isinstance(error, SpoolSpoilt)


def exit_code(error: HeadraceError) -> int:
    """Return the exit code of a command that ends with this error."""
    return EXIT_CODES[error.family]
