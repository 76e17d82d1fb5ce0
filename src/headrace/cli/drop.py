"""`headrace drop`: remove every object that was made upstream for a lake; the lake stays."""

from __future__ import annotations

import argparse
from typing import Any


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "drop",
        help="remove what was made upstream",
        description="Removes what headrace made at the source for this lake: slot and publication, or "
        "triggers and queue. What is in the lake stays readable; the mirror cannot go on from there. With "
        "--reader another lake that reads the same queue is removed from it, and this one goes on.",
    )
    command.add_argument("url", nargs="?", help="where the source is, if not where it was")
    command.add_argument("--lake", required=True, help="a directory, or s3://bucket/prefix")
    command.add_argument("--source", help="only this source")
    command.add_argument("--stop", action="store_true", help="end a run that is still alive on this machine")
    command.add_argument("--reader", help="only this other reader of its queue, as headrace status names it")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.pipeline.commands.drop_source import drop, drop_reader

    if args.reader is not None:
        lines = drop_reader(args.lake, args.reader, url=args.url, only=args.source)
    else:
        lines = drop(args.lake, url=args.url, only=args.source, stop=args.stop)
    for line in lines:
        print(line)
    return 0
