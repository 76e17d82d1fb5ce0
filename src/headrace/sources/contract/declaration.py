"""The declaration of a kind of source: all that is said of it before any of it is loaded. Values only.

Its options stand here too: the keys of `[source.NAME]` that it has beside those of every source, and the
`--name`s of `run` and `check`. Whoever reads a configuration checks each by itself, and refuses what only
another kind declares; options that do not go together are the source's to refuse (`Source.plan`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Option:
    """An option of one kind of source; its values are texts."""

    name: str
    help: str  # one line
    default: str | None = None
    choices: tuple[str, ...] = ()  # none: any text
    number: bool = False  # a number may be written as one
    in_sql: bool = False  # CREATE SOURCE asks for it, by its name in capitals


@dataclass(frozen=True, slots=True)
class Declaration:
    """A kind of source as it introduces itself."""

    kind: str  # in the lake's records; in capitals after CREATE SOURCE ... FROM
    title: str  # for people
    schemes: tuple[str, ...]  # of its addresses
    password: str  # where a password is found that the address leaves out, for a hint
    options: tuple[Option, ...] = ()
    driver: str = ""  # the package that its connections are made with

    @property
    def keyword(self) -> str:
        return self.kind.upper()

    @property
    def in_sql(self) -> tuple[Option, ...]:
        """The options that CREATE SOURCE asks for, in its order."""
        return tuple(option for option in self.options if option.in_sql)

    def value(self, options: Mapping[str, str], name: str) -> str | None:
        """The value of an option, or its default."""
        [declared] = (option for option in self.options if option.name == name)
        return options.get(name, declared.default)
