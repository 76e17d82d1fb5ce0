"""`headrace tables`: add, drop or resync tables of a source, while a run mirrors it or while none does."""

from __future__ import annotations

import argparse
from typing import Any

from headrace.cli.output import say
from headrace.cli.parser import examples


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "tables",
        help="mirror further tables, or fewer",
        description="Changes which tables of a source are mirrored. A running `headrace run` does it at once "
        "and goes on with the others meanwhile; without one it is written down for the next.",
        epilog=examples(
            "headrace tables add --lake ./lake 'sales.*'",
            "headrace tables resync --lake ./lake public.orders",
        ),
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    for name, about, run in (
        ("add", "mirror further tables: patterns as in `headrace run --tables`", add),
        ("drop", "mirror these tables no longer; what the lake has of them stays readable", drop),
        ("resync", "copy these tables anew beside the old, and write the difference in one mark", resync),
    ):
        action = actions.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=examples(f"headrace tables {name} --lake ./lake public.orders"),
        )
        action.add_argument("names", nargs="+", metavar="NAME", help="such as public.orders or 'public.*'")
        action.add_argument(
            "--lake", metavar="DIR", required=True, help="a directory, or a bucket: s3://, gs:// or abfss://"
        )
        action.add_argument("--source", metavar="NAME", help="which source of the lake, if it has several")
        action.add_argument("--url", help="where the source is, if not where it was and nobody runs it")
        action.set_defaults(run=run)


def add(args: argparse.Namespace) -> int:
    answer = _ask("tables.add", args)
    for name in answer["added"]:
        say(f"{name}: chosen; it is in the marks as soon as its copy is exact")
    for name, state in answer["already"].items():
        say(f"{name}: mirrored already, {state}")
    for name, error in answer["left_out"].items():
        say(f"{name}: left out, {error['code']}: {error['primary']}")
    return 0


def drop(args: argparse.Namespace) -> int:
    for name in _ask("tables.drop", args)["dropped"]:
        say(f"{name}: dropped; the marks up to here still hold it")
    return 0


def resync(args: argparse.Namespace) -> int:
    for name in _ask("resync", args)["tables"]:
        say(f"{name}: is copied anew; the marks go on with what it holds until the difference is written")
    return 0


def _ask(kind: str, args: argparse.Namespace) -> Any:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.pipeline.commands.ask import ask

    return ask(args.lake, kind, {"tables": args.names}, source=args.source, url=args.url)
