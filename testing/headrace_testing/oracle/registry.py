"""Finds the oracle of an address by its scheme, and loads nothing of the others.

An address without one is made of pairs `key=value`: PostgreSQL's. A source of another package registers its
own.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from headrace_testing.oracle.contract import Oracle

_MODULES = {
    "postgresql": "postgres",
    "postgres": "postgres",
    "queue+postgresql": "queue",
    "mysql": "mysql",
    "mariadb": "mysql",
}
_WITHOUT_SCHEME = "postgres"
_registered: dict[str, Oracle] = {}


def register(scheme: str, oracle: Oracle) -> None:
    """Register the oracle of addresses with this scheme."""
    _registered[scheme] = oracle


def oracle_of(url: str) -> Oracle:
    """The oracle of the server at this address."""
    scheme, colon, _ = url.partition("://")
    if scheme in _registered:
        return _registered[scheme]
    return _loaded(_MODULES[scheme] if colon else _WITHOUT_SCHEME)


@cache
def _loaded(module: str) -> Oracle:
    oracle: Oracle = import_module(f"headrace_testing.oracle.{module}").ORACLE
    return oracle
