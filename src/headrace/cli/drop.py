"""`headrace drop`: remove every object that headrace made upstream for a lake; the lake stays."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from headrace.cli.output import say
from headrace.cli.parser import examples
from headrace.core.errors import Misconfigured

DECLINED = 130


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "drop",
        help="remove what was made upstream",
        description="Removes the objects that headrace made at the source for this lake. What is in the lake "
        "stays readable; the mirror cannot go on from there. With --reader another lake that reads the same "
        "queue is removed from it, and this one goes on. With --state it is a Spark query without a lake.",
        epilog=examples("headrace drop --lake ./lake --dry-run"),
    )
    command.add_argument("url", nargs="?", help="where the source is, if not where it was")
    place = command.add_mutually_exclusive_group(required=True)
    place.add_argument("--lake", metavar="DIR", help="a directory, or a bucket: s3://, gs:// or abfss://")
    place.add_argument(
        "--state", metavar="DIR", help="of a Spark query straight from a source; its files go, too"
    )
    command.add_argument("--source", metavar="NAME", help="only this source")
    command.add_argument("--stop", action="store_true", help="end a run that is still alive on this machine")
    command.add_argument(
        "--reader", metavar="NAME", help="only this other reader of its queue, as headrace status names it"
    )
    command.add_argument("--yes", action="store_true", help="do not ask")
    command.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    command.add_argument("--moved", action="store_true", help="the lake was moved here, and is no copy")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return _drop_state(args) if args.state is not None else _drop_lake(args)


def _drop_lake(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.pipeline.commands.drop_source import drop, drop_reader, removable

    if args.dry_run or not args.yes:
        found = removable(args.lake, url=args.url, only=args.source, reader=args.reader)
        if (code := _rehearse(args, found)) is not None:
            return code
    if args.reader is not None:
        lines = drop_reader(args.lake, args.reader, url=args.url, only=args.source)
    else:
        lines = drop(args.lake, url=args.url, only=args.source, stop=args.stop, is_moved=args.moved)
    for line in lines:
        say(line)
    return 0


def _drop_state(args: argparse.Namespace) -> int:
    # Imported late, as in every command.
    from headrace.spark.source.direct.removal import removable, remove

    if args.source or args.reader or args.stop or args.moved:
        raise Misconfigured(
            "DROP_STATE_ALONE",
            "a state has one stream, and --source, --reader, --stop and --moved are of a lake",
            hint="headrace drop --state DIR",
        )
    if args.dry_run or not args.yes:
        code = _rehearse(args, removable(args.state, args.url))
        if code is not None:
            return code
    for line in remove(args.state, args.url):
        say(line)
    return 0


def _rehearse(args: argparse.Namespace, found: list[str]) -> int | None:
    """Say what would be removed; the exit code if that is all, or if whoever is asked declines."""
    for line in found:
        say(f"{line}: would be dropped" if args.dry_run else line)
    if args.dry_run:
        say("a rehearsal: nothing was changed" if found else "nothing of ours is there")
        return 0
    if found and not _agrees():
        say("nothing was dropped")
        return DECLINED
    return None


def _agrees() -> bool:
    """Ask the person at the terminal."""
    if not sys.stdin.isatty():
        raise Misconfigured(
            "DROP_UNCONFIRMED",
            "what was made at the source is about to be removed, and nobody is there to ask",
            detail="the mirror can't go on from there",
            hint="headrace drop --yes; or --dry-run, which only says what would be removed",
        )
    return input("drop these? the mirror can't go on from there [y/N] ").strip().lower() in ("y", "yes")
