"""Credential: where a password comes from that may change while a run goes on. A value; it asks nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

COMMAND_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Credential:
    """The origin of a password: a command that prints it, or a file that holds it."""

    command: tuple[str, ...] = field(default=(), repr=False)
    file: str | None = None
    ttl: float = 0.0  # seconds for which the output of a command is remembered
    seconds: float = COMMAND_SECONDS  # a command may take
