"""`headrace version`: what is installed here, for a bug report.

Headrace, Python, and the packages whose version decides what works. PySpark may be absent: plain
`headrace` uses the Spark that is there. Nothing heavy is imported: versions are read from metadata.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any

import headrace

PACKAGES = ("pyspark", "deltalake", "pyarrow", "polars", "numba", "psycopg")


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser("version", help="what is installed here")
    parser.add_argument("--json", action="store_true", help="for a program to read")
    parser.set_defaults(run=run)


def versions() -> dict[str, str | None]:
    """Names and versions; None for a package that is not installed."""
    found: dict[str, str | None] = {
        "headrace": headrace.__version__,
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        try:
            found[package] = installed(package)
        except PackageNotFoundError:
            found[package] = None
    return found


def run(args: argparse.Namespace) -> int:
    found = versions()
    if args.json:
        print(json.dumps(found))
        return 0
    for name, number in found.items():
        print(f"{name:10} {number or 'not installed'}")
    return 0
