"""`headrace maintain`: compact tables, thin out marks, expire history, delete what no mark needs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from typing import Any

from headrace.cli.output import say
from headrace.cli.parser import examples


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "maintain",
        help="compact, expire, and delete what no mark needs",
        description="Puts small files together, thins out old marks, lets history go that is past its "
        "retention, and deletes what no mark needs. Safe beside a run, which then does it between two epochs "
        "of its own; can be ended at any moment and begun again.",
        epilog=examples(
            "headrace maintain --lake ./lake --dry-run", "headrace maintain --lake ./lake --retention 30d"
        ),
    )
    command.add_argument(
        "--lake", metavar="DIR", required=True, help="a directory, or a bucket: s3://, gs:// or abfss://"
    )
    command.add_argument("--source", metavar="NAME", help="only this source")
    kept = command.add_argument_group("how much stays")
    kept.add_argument(
        "--retention",
        metavar="DURATION",
        help="how far back history goes, such as 30d (default: for ever)",
    )
    kept.add_argument(
        "--marks",
        metavar="DURATION",
        help="for how long every single mark is kept (default: 5m)",
    )
    kept.add_argument(
        "--grace",
        metavar="DURATION",
        help="for how long a reader may go on with what it opened (default: 45m)",
    )
    command.add_argument(
        "--rewrite",
        action="store_true",
        help="also write files with deletion vectors anew, so that every reader of Parquet reads the tables",
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would be done")
    command.add_argument("--json", action="store_true", help="for a program to read")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.lake.retain.thinning import Keeping
    from headrace.pipeline.commands import ask
    from headrace.pipeline.state import last_config

    words = {name: getattr(args, name) for name in ("retention", "marks", "grace")}
    given = {name: word for name, word in words.items() if word is not None}
    Keeping.of(**given)  # refuses bad values before anything else happens
    flags = {"dry_run": args.dry_run, "rewrite": args.rewrite}
    known = sorted(last_config.sources(args.lake))
    names = known if args.source is None and known else [ask.the_source(args.lake, args.source)]
    reports = {name: ask.ask(args.lake, "maintain", {**given, **flags}, source=name) for name in names}
    if args.json:
        print(json.dumps(reports))
    else:
        for name, report in reports.items():
            for line in lines(report):
                say(f"{name}: {line}")
    return 0


def lines(report: Mapping[str, Any]) -> Iterator[str]:
    """The report in plain words."""
    if report["dry_run"]:
        yield "a rehearsal: nothing was changed; what follows would be done"
    compacted, marks, history, deleted = (
        report[part] for part in ("compacted", "marks", "history", "deleted")
    )
    yield f"{compacted['before']} small files put together into {compacted['after']}"
    yield (
        f"{marks['dropped']} marks thinned out; {marks['files_before']} files of marks "
        f"put together into {marks['files_after']}"
    )
    if history["reaches_back_to"] is not None:
        yield (
            f"history reaches back to {history['reaches_back_to']}; "
            f"{history['files_expired']} files of history expired"
        )
    yield (
        f"deleted: {deleted['files']} files that nobody needs, {deleted['log']} of Delta's logs, "
        f"{deleted['plans']} plans and catalogs, {deleted['requests']} answered requests"
    )
    for place, code in report["left_alone"].items():
        yield f"left alone: {place} ({code})"
