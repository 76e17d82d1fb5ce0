"""`headrace run`: snapshot, then stream, until it is told to stop (or, with --once, has caught up)."""

from __future__ import annotations

import argparse
import signal
import threading
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from headrace.cli.parser import examples
from headrace.cli.serve import listening
from headrace.cli.source_options import add_source_options, source_options
from headrace.core.durations import pace
from headrace.core.errors import Misconfigured
from headrace.pipeline.state import config as configuration
from headrace.pipeline.state.config import Config

INTERRUPTED = 130


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "run",
        help="mirror tables: snapshot, then stream",
        description="Mirrors the chosen tables of a database into a lake: a consistent snapshot, then the "
        "change stream, published in marks. Ctrl-C or SIGTERM finishes the epoch in hand and stops.",
        epilog=examples(
            "headrace run postgresql://me@db.example/shop --lake ./lake --tables 'public.*'",
            "headrace run --lake ./lake --listen 127.0.0.1:9464",
        ),
    )
    _add_what(command.add_argument_group("which database, which tables, which lake"))
    _add_when(command.add_argument_group("how often, and until when"))
    _add_ways_back(command.add_argument_group("if the lake, or the place in the stream, is not where it was"))
    shown = command.add_argument_group("what it shows")
    shown.add_argument("--json", action="store_true", help="progress as one JSON record a line")
    shown.add_argument(
        "--listen",
        metavar="ADDRESS",
        help="serve metrics, health and a page at HOST:PORT, such as 127.0.0.1:9464 (default: not at all)",
    )
    add_source_options(command)
    command.set_defaults(run=run)


def _add_what(group: argparse._ArgumentGroup) -> None:
    group.add_argument("url", nargs="?", help="postgresql://user@host:port/database, or host=... dbname=...")
    group.add_argument("--lake", metavar="DIR", help="a directory, or a bucket: s3://, gs:// or abfss://")
    group.add_argument(
        "--tables", nargs="+", action="extend", default=[], metavar="PATTERN", help="such as 'public.*'"
    )
    group.add_argument(
        "--source",
        metavar="NAME",
        help="its name in the lake (default: main); without URL: only this one of the lake or of --config",
    )
    group.add_argument("--config", metavar="FILE", help="a headrace.toml, instead of the above")


def _add_when(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--every",
        metavar="DURATION",
        help="at least so long between two marks, such as 10s; 0s: as soon as possible; auto: 1s to 20s, by "
        "what marks cost (default: auto)",
    )
    group.add_argument("--once", action="store_true", help="stop when caught up with the position at start")


def _add_ways_back(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--reconcile",
        action="store_true",
        help="if the place in the stream is lost, copy the tables anew and write the difference in one mark",
    )
    elsewhere = group.add_mutually_exclusive_group()
    elsewhere.add_argument(
        "--moved",
        dest="elsewhere",
        action="store_const",
        const="moved",
        help="the lake was moved here from where it lay",
    )
    elsewhere.add_argument(
        "--copy",
        dest="elsewhere",
        action="store_const",
        const="copy",
        help="the lake is a copy of one that goes on: it gets objects of its own at the source; "
        "with --reconcile in the same run",
    )


def run(args: argparse.Namespace) -> int:
    # Imported late: whoever asks for --help or --version does not wait for Delta, Polars and Numba.
    from headrace.cli.progress import ProgressView
    from headrace.pipeline.run import mirror

    stop, config = set_by_signals(), with_pace(parse_config(args), args.every)
    with ExitStack() as stack:
        page = listening(stack, args.listen, config.lake.path, config.web)
        progress = stack.enter_context(ProgressView(as_json=args.json))
        progress.begin(config.lake.path, page)
        mirror(
            config,
            once=args.once,
            stop=stop,
            listener=progress.tell,
            reconcile=args.reconcile,
            elsewhere=args.elsewhere,
            free_spark=True,
        )
    # With --once, 0 means that all is mirrored: a run that a signal stopped can't promise that.
    return INTERRUPTED if args.once and stop.is_set() else 0


def set_by_signals() -> threading.Event:
    """An event that Ctrl-C and SIGTERM set.

    A thread sets it: the handler interrupts the main thread, which may hold the event's lock.
    """
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: threading.Thread(target=stop.set).start())
    return stop


def parse_config(args: argparse.Namespace) -> Config:
    """The configuration that the arguments give."""
    if args.config:
        if args.url or args.tables or source_options(args):
            raise Misconfigured(
                "RUN_TWO_CONFIGURATIONS",
                "both --config and a source on the command line are given",
                hint="give either --config FILE, or URL --lake DIR --tables PATTERN",
            )
        return _only(_in_lake(configuration.read(args.config), args.lake), args.source)
    name, said = args.source or "main", _source_section(args)
    raw = {"lake": {"path": args.lake} if args.lake else {}, "source": {name: said} if said else {}}
    given = configuration.with_environment(raw, wins=False)
    if "path" not in given["lake"]:
        raise Misconfigured(
            "RUN_INCOMPLETE",
            "it is not said which lake to run",
            hint="headrace run URL --lake DIR --tables 'public.*', or headrace run --config headrace.toml",
        )
    if args.url:
        return _only(configuration.parse(given), name)
    if any("url" in section for section in given["source"].values()):  # by variables
        return _only(configuration.parse(given), args.source)
    if source_options(args):
        raise Misconfigured(
            "RUN_INCOMPLETE",
            f"--{next(iter(source_options(args)))} is given, and no source whose option it is",
            hint="headrace run URL --lake DIR ..., or leave it out: the lake remembers its options",
        )
    from headrace.pipeline.state.last_config import configuration_of

    return _only(configuration_of(given["lake"]["path"]), args.source)


def _source_section(args: argparse.Namespace) -> dict[str, Any]:
    """The section of a source that the command line means."""
    said = {"url": args.url, "tables": list(args.tables), **source_options(args)}
    return {key: value for key, value in said.items() if value}


def with_pace(config: Config, every: str | None) -> Config:
    """The configuration with `--every` for each source, if it was given."""
    if every is None:
        return config
    pace(every, "--every")
    sources = {name: replace(source, every=every) for name, source in config.sources.items()}
    return replace(config, sources=sources)


def _only(config: Config, name: str | None) -> Config:
    """The configuration with the named source alone; without a name, all of it."""
    if name is None:
        return config
    if name not in config.sources:
        raise Misconfigured(
            "RUN_SOURCE_UNKNOWN",
            f'nothing is known of a source "{name}"',
            hint=f"name one of: {', '.join(sorted(config.sources))}; a new one needs its URL",
        )
    return replace(config, sources={name: config.sources[name]})


def _in_lake(config: Config, lake: str | None) -> Config:
    if lake is None:
        return config
    return replace(config, lake=replace(config.lake, path=lake))
