"""`headrace iceberg`: exports the marks of a lake as snapshots of Iceberg tables over the same files."""

from __future__ import annotations

import argparse
import json
from typing import Any

from headrace.cli.output import say
from headrace.cli.parser import examples

_ACTIONS = {
    "attach": "begin to export the marks of a source to an Iceberg catalog",
    "status": "say which mark was exported last, and which tables were left out",
    "rebuild": "make the tables in the catalog anew, from the newest mark",
    "detach": "take the tables out of the catalog; the lake stays as it is",
}


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "iceberg",
        help="let engines of Iceberg read the marks",
        description="Exports marks to an Iceberg catalog: one snapshot a table over the lake's files, and "
        "one tag a mark on all tables. A run then does so once a minute: docs/engines.md.",
        epilog=examples("headrace iceberg attach --lake ./lake", "headrace iceberg status --lake ./lake"),
    )
    actions = command.add_subparsers(title="actions", metavar="ACTION", required=True)
    runs = {"attach": attach, "status": status, "rebuild": rebuild, "detach": detach}
    for name, about in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=about,
            description=f"{about[0].upper()}{about[1:]}.",
            epilog=examples(f"headrace iceberg {name} --lake ./lake"),
        )
        action.add_argument("--lake", metavar="DIR", required=True, help="a directory")
        action.add_argument("--source", metavar="NAME", help="which source of the lake, if it has several")
        if name == "attach":
            _add_settings(action)
        if name == "status":
            action.add_argument("--json", action="store_true", help="for a program to read")
        action.set_defaults(run=runs[name])


def _add_settings(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "--catalog",
        metavar="NAME",
        default="",
        help="a catalog of ~/.pyiceberg.yaml, or with --uri the name that it gets (default: headrace)",
    )
    action.add_argument(
        "--uri",
        metavar="URI",
        help="an SQL catalog without a password, or a REST catalog by https (default: a file in the lake)",
    )
    action.add_argument(
        "--namespace",
        metavar="NAME",
        default="",
        help="above the namespaces of schemas (default: the source's name)",
    )
    action.add_argument(
        "--every", metavar="DURATION", default="1m", help="export a mark at most this often (default: 1m)"
    )
    action.add_argument(
        "--tags", metavar="N", type=int, default=60, help="how many exported marks stay (default: 60)"
    )


def attach(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.core.errors import Misconfigured
    from headrace.core.records import to_record
    from headrace.iceberg.settings import IcebergConfig, check, secret_in

    if args.uri is not None and secret_in(args.uri):
        raise Misconfigured(
            "ICEBERG_PASSWORD",
            "the address of the Iceberg catalog holds a password, which the lake would keep",
            hint="write the catalog into ~/.pyiceberg.yaml and give its name: --catalog NAME",
        )
    kind = "rest" if args.uri is not None and args.uri.startswith(("http://", "https://")) else "sql"
    properties = {} if args.uri is None else {"type": kind, "uri": args.uri}
    config = check(IcebergConfig(args.catalog, properties, args.namespace, args.every, args.tags))
    _say_exported(_ask("iceberg.attach", args, to_record(config)))
    return 0


def rebuild(args: argparse.Namespace) -> int:
    _say_exported(_ask("iceberg.rebuild", args, {}))
    return 0


def detach(args: argparse.Namespace) -> int:
    _ask("iceberg.detach", args, {})
    say("detached: the catalog has none of the lake's tables any more")
    return 0


def status(args: argparse.Namespace) -> int:
    from headrace.pipeline.commands.ask import the_source
    from headrace.pipeline.commands.iceberg import status as state_of

    said = state_of(args.lake, the_source(args.lake, args.source))
    if args.json:
        print(json.dumps(said))
        return 0
    if said["epoch"] is None:
        say("no mark was exported yet")
    else:
        newest = f"the newest is {said['newest_epoch']}"
        say(f"mark {said['epoch']} was exported at {said['exported_at']}; {newest}")
    tags = f"{len(said['tags'])} tags, a mark at most every {said['every']}"
    say(f'namespace "{said["namespace"]}", {tags}')
    for name, code in said["left_out"].items():
        say(f"left out: {name} ({code})")
    return 0


def _say_exported(answer: Any) -> None:
    if answer["epoch"] is None:
        say("no mark was exported: the lake has none that is durable yet")
    else:
        say(f'mark {answer["epoch"]}: {answer["tables"]} tables in the namespace "{answer["namespace"]}"')
    for name, error in answer["left_out"].items():
        say(f"left out: {name}, {error['code']}: {error['primary']}")


def _ask(kind: str, args: argparse.Namespace, arguments: Any) -> Any:
    from headrace.pipeline.commands.ask import ask, the_source

    return ask(args.lake, kind, arguments, source=the_source(args.lake, args.source))
