"""`headrace explain`: what an error's code means and what to do, without the documents.

It reads `errors.tsv`, which `make docs` writes from the same fragments as `docs/errors.md`.
"""

from __future__ import annotations

import argparse
from functools import cache
from importlib.resources import files
from typing import Any

from headrace.cli.parser import examples
from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean

_FAMILIES = {
    "definite": "true of the data or of one table; that table stops, the others go on",
    "transient": "the world is in the way; it is tried again, and nothing is lost meanwhile",
    "misconfigured": "a person must act; nothing goes on before",
}


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "explain",
        help="what an error means, and what to do",
        description="Prints what the code of an error means and what to do about it.",
        epilog=examples("headrace explain LAKE_ABSENT"),
    )
    command.add_argument("code", metavar="CODE", help="as an error begins with it")
    command.set_defaults(run=run)


@cache
def codes() -> dict[str, list[str]]:
    """The family, the meaning and the remedy of each code."""
    lines = files("headrace.cli").joinpath("errors.tsv").read_text(encoding="utf-8").splitlines()
    return {code: rest for code, *rest in (line.split("\t") for line in lines)}


def run(args: argparse.Namespace) -> int:
    code = args.code.strip().rstrip(":").upper()
    known = codes()
    if code not in known:
        raise Misconfigured(
            "EXPLAIN_CODE_UNKNOWN",
            f'there is no error "{args.code}"',
            detail=did_you_mean(code, known),
            hint="an error begins with its code, as in LAKE_ABSENT; one of Spark's own is not known here",
        )
    family, meaning, remedy = known[code]
    print(f"{code} ({family}: {_FAMILIES[family]})")
    print(f"what it means: {meaning}")
    print(f"what to do: {remedy}")
    return 0
