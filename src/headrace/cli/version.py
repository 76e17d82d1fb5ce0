"""`headrace version`: what is installed here, for a bug report.

It lists Headrace, Python, and the packages whose versions decide what works. PySpark may be absent: plain
`headrace` uses the Spark of the machine. It imports nothing heavy: versions are read from metadata.
"""

from __future__ import annotations

import argparse
import json
import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed
from typing import Any

import headrace
from headrace.cli.parser import examples
from headrace.sources.registry import declaration, kinds

PACKAGES = ("pyspark", "deltalake", "pyarrow", "polars", "numba")


def register(subparsers: Any) -> None:
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "version",
        help="what is installed here",
        description="Names headrace, Python and the packages whose versions decide what works.",
        epilog=examples("headrace version"),
    )
    parser.add_argument("--json", action="store_true", help="for a program to read")
    parser.set_defaults(run=run)


def versions() -> dict[str, str | None]:
    """Names and versions; None for a package that is not installed."""
    found: dict[str, str | None] = {
        "headrace": headrace.__version__,
        "python": platform.python_version(),
    }
    drivers = dict.fromkeys(declaration(kind).driver for kind in kinds())
    for package in (*PACKAGES, *filter(None, drivers)):
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
