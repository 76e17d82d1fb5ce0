"""`headrace drop`: remove every object that was made upstream for a lake; the lake stays."""

from __future__ import annotations

import argparse
from typing import Any


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "drop",
        help="remove what was made upstream",
        description="Removes the slot and the publication that headrace made for this lake. What is in "
        "the lake stays readable; the mirror cannot go on from there.",
    )
    command.add_argument("url", nargs="?", help="where the source is, if not where it was")
    command.add_argument("--lake", required=True, help="a directory, or s3://bucket/prefix")
    command.add_argument("--source", help="only this source")
    command.add_argument("--stop", action="store_true", help="end a run that is still alive on this machine")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.pipeline.commands.drop_source import drop

    for line in drop(args.lake, url=args.url, only=args.source, stop=args.stop):
        print(line)
    return 0
