"""Headrace: exact, transaction-whole mirrors of database tables in a lakehouse, on Spark.

Rooms, from the ground up; imports only go down:

    core       the algebra: positions, collections, handoffs, rewind, fold; pure
    decode     bytes to Arrow; pure
    sources    each database: protocol, session, snapshot, stream, types, preflight
    spool      raw segments of the stream and the index of their transactions; may be lost
    ingest     the receiver's process, from a source's stream into the spool
    lake       Delta tables, plans, marks, the catalog, readers
    spark      sessions and jobs; the only importer of PySpark
    alerts     what happens to a mirror, told to webhooks and commands
    iceberg    marks as snapshots of Iceberg tables over the same files; the only importer of pyiceberg
    pipeline   who does what next: copy, epochs, policy
    status     one read-only picture of it all
    web        metrics, health and a page, over HTTP
    sql        SQL over a lake: its tables by name, and statements of our own
    cli        the command line
    testing    real servers and validators, for tests and the demo

This module hands out the public names and nothing else, each when it is first asked for: whoever wants
`headrace.Misconfigured` does not pay for Delta, Polars and Spark. Before all else `interpreter` refuses a
Python that is too old.
"""

import importlib
from typing import TYPE_CHECKING

from headrace import interpreter as interpreter

if TYPE_CHECKING:
    from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
    from headrace.lake.read.lake import Lake
    from headrace.pipeline.run import mirror
    from headrace.pipeline.verify.proof import verify

__version__ = "0.1.0"

__all__ = [
    "Definite",
    "HeadraceError",
    "Lake",
    "Misconfigured",
    "Transient",
    "__version__",
    "mirror",
    "verify",
]

_HOMES = {
    "Definite": "headrace.core.errors",
    "HeadraceError": "headrace.core.errors",
    "Lake": "headrace.lake.read.lake",
    "Misconfigured": "headrace.core.errors",
    "Transient": "headrace.core.errors",
    "mirror": "headrace.pipeline.run",
    "verify": "headrace.pipeline.verify.proof",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> "list[str]":
    return sorted(__all__)
