"""Finds a source by its kind, or by the scheme of an address; the only importer of the folders beside it.

    by_kind("postgres")                  the source of this kind, as records name it
    by_address("postgresql://me@db")     the source with this scheme; key=value pairs are PostgreSQL's
    stream_source("postgres")            its stream; a receiver loads nothing else of it, and no Arrow
    declaration("postgres")              its names and options; nothing else of it is loaded
    spelling("postgres")                 how it writes positions; a reader of a lake loads nothing else of it

A source is imported when it is first asked for. Another package adds a source by an entry point in the group
`headrace.sources`: the kind, and the package with the modules that are loaded here (docs/write-a-source.md).
Headrace's own sources stand in a table here. A flavour has a kind of its own and the folder of another kind:
MariaDB uses MySQL's folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from headrace.core.errors import Misconfigured
from headrace.core.position import Spelling
from headrace.sources.contract.values import Declaration

if TYPE_CHECKING:  # they load Arrow and NumPy
    from headrace.sources.contract.source import Source
    from headrace.sources.contract.stream import StreamSource

# The folder of a kind, and what the names of a flavour begin with there.
_FOLDERS = {
    "postgres": ("headrace.sources.postgres", ""),
    "mysql": ("headrace.sources.mysql", ""),
    "mariadb": ("headrace.sources.mysql", "MARIADB_"),
    "queue": ("headrace.sources.queue", ""),
}
GROUP = "headrace.sources"
_WITHOUT_SCHEME = "postgres"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def kinds() -> tuple[str, ...]:
    """The kinds of source that there are, ours first."""
    return (*_FOLDERS, *_foreign_folders())


@cache
def _foreign_folders() -> dict[str, tuple[str, str]]:
    """The packages of other sources by their kinds; none replaces one of ours."""
    from importlib.metadata import entry_points  # a receiver of ours does not wait for it

    found = {each.name: (each.value, "") for each in entry_points(group=GROUP)}
    return {kind: package for kind, package in found.items() if kind not in _FOLDERS}


@cache
def declaration(kind: str) -> Declaration:
    """Find the declaration of this kind of source."""
    found: Declaration = _load(kind, "declaration", "DECLARATION")
    return found


def by_kind(kind: str) -> Source:
    """The source of this kind."""
    return _source(kind)


@cache
def stream_source(kind: str) -> StreamSource:
    """The half of this kind of source that a receiver needs."""
    found: StreamSource = _load(kind, "stream_source", "STREAM_SOURCE")
    return found


@cache
def spelling(kind: str) -> Spelling:
    """Find the spelling of this kind of source."""
    found: Spelling = _load(kind, "spelling", "SPELLING")
    return found


def by_address(text: str) -> Source:
    """The source of this address, by its scheme; an error never shows a password in it."""
    return by_kind(kind_of(text))


def kind_of(address: str) -> str:
    """The kind of source of this address, by its scheme."""
    scheme = _SCHEME.match(address)
    if scheme is None:
        return _WITHOUT_SCHEME
    # Try ours first: that spares a search of the installed packages.
    kind = _among(_FOLDERS, scheme[1]) or _among(_foreign_folders(), scheme[1])
    if kind is None:
        raise _unknown_error(f'at an address that begins with "{scheme[0]}"')
    return kind


def _among(known: Iterable[str], scheme: str) -> str | None:
    return next((kind for kind in known if scheme in declaration(kind).schemes), None)


@cache
def _source(kind: str) -> Source:
    source: Source = _load(kind, "source", "SOURCE")
    return source


def _load(kind: str, module: str, name: str) -> Any:
    found = _FOLDERS.get(kind) or _foreign_folders().get(kind)
    if found is None:
        raise _unknown_error(f'of the kind "{kind}"')
    folder, flavour = found
    return getattr(import_module(f"{folder}.{module}"), f"{flavour}{name}")


def _unknown_error(what: str) -> Misconfigured:
    schemes = sorted(scheme for kind in kinds() for scheme in declaration(kind).schemes)
    known = ", ".join(f"{scheme}://" for scheme in schemes)
    return Misconfigured(
        "SOURCE_UNKNOWN",
        f"this version knows no source {what}",
        hint=f"use one of {known}; or a newer headrace",
    )
