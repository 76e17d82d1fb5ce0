"""Finds a source by its kind, or by the scheme of an address; the only importer of the folders beside it.

    by_kind("postgres")                  the source whose records say so
    by_address("postgresql://me@db")     the source whose scheme it is; key=value pairs are PostgreSQL's

A source is imported when it is first asked for, so that nobody loads what is not needed. Called by everyone
above `sources`; a further source is a line of each table here.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module

from headrace.core.errors import Misconfigured
from headrace.sources.contract import Source

_MODULES = {"postgres": "headrace.sources.postgres.source"}
_SCHEMES = {"postgresql": "postgres", "postgres": "postgres"}
_WITHOUT_SCHEME = "postgres"
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def by_kind(kind: str) -> Source:
    """The source of this kind."""
    if kind not in _MODULES:
        raise _unknown(f'of the kind "{kind}"')
    return _loaded(_MODULES[kind])


def by_address(text: str) -> Source:
    """The source that this address is one of; a password in it is never shown."""
    scheme = _SCHEME.match(text)
    if scheme is None:
        return by_kind(_WITHOUT_SCHEME)
    if scheme[1] not in _SCHEMES:
        raise _unknown(f'at an address that begins with "{scheme[0]}"')
    return by_kind(_SCHEMES[scheme[1]])


@cache
def _loaded(module: str) -> Source:
    source: Source = import_module(module).SOURCE
    return source


def _unknown(what: str) -> Misconfigured:
    known = ", ".join(f"{scheme}://" for scheme in sorted(_SCHEMES))
    return Misconfigured(
        "SOURCE_UNKNOWN",
        f"this version knows no source {what}",
        hint=f"use one of {known}; or a newer headrace",
    )
