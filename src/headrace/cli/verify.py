"""`headrace verify`: proves that source and mirror hold the same rows, while both go on."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.output import say
from headrace.cli.parser import examples
from headrace.core.errors import Misconfigured
from headrace.status import sentences

if TYPE_CHECKING:
    from headrace.pipeline.state.config import Config
    from headrace.pipeline.verify.verdicts import Difference, TableVerdict, Verdict


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "verify",
        help="prove that the lake holds what the source holds",
        description="Reads the source once, under a snapshot, and the lake at the same set of transactions, "
        "and compares checksums of all rows. Rows that differ are named by their keys. Exit code 0: every "
        "chosen table is equal; 3: one differs; 2: one could not be compared. A `headrace run` may go on "
        "meanwhile, and has to where the source is written to.",
        epilog=examples(
            "headrace verify --lake ./lake", "headrace verify --lake ./lake --tables public.orders"
        ),
    )
    command.add_argument("url", nargs="?", help="where the source is, if not where it was")
    command.add_argument("--lake", metavar="DIR", help="a directory, or a bucket: s3://, gs:// or abfss://")
    command.add_argument("--config", metavar="FILE", help="a headrace.toml, instead of the above")
    command.add_argument("--source", metavar="NAME", help="only this source of the lake")
    command.add_argument(
        "--tables", nargs="+", action="extend", default=[], metavar="PATTERN", help="such as 'public.*'"
    )
    command.add_argument(
        "--wait",
        type=_seconds,
        default=120.0,
        metavar="SECONDS",
        help="how long the mirror may take to get to where the source was looked at (default: 120)",
    )
    command.add_argument("--show-values", action="store_true", help="show whole rows, not only their keys")
    command.add_argument(
        "--repair", action="store_true", help="have tables that differ copied anew: `headrace tables resync`"
    )
    command.add_argument("--json", action="store_true", help="for a program to read")
    command.set_defaults(run=run)


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.pipeline.verify.proof import verify
    from headrace.pipeline.verify.verdicts import objection

    config = parse_config(args)
    verdicts = verify(
        config,
        tables=args.tables,
        source=args.source,
        wait=args.wait,
        show_values=args.show_values,
    )
    if args.json:
        print(json.dumps({verdict.source: verdict.to_json() for verdict in verdicts}))
    else:
        for verdict in verdicts:
            say("\n".join(page(verdict)))
    for verdict in verdicts if args.repair else ():
        _repair(config, verdict)
    error = objection(verdicts)
    if error is not None:
        raise error
    return 0


def parse_config(args: argparse.Namespace) -> Config:
    """The configuration that the arguments give."""
    from dataclasses import replace

    from headrace.pipeline.commands.ask import the_source
    from headrace.pipeline.state import config as configuration
    from headrace.pipeline.state.last_config import configuration_of

    if args.config:
        if args.url or args.lake:
            raise Misconfigured(
                "RUN_TWO_CONFIGURATIONS",
                "both --config and a source on the command line are given",
                hint="give either --config FILE, or --lake DIR",
            )
        return configuration.read(args.config)
    if not args.lake:
        raise Misconfigured(
            "RUN_INCOMPLETE",
            "it is not said which lake to verify",
            hint="headrace verify --lake DIR, or headrace verify --config headrace.toml",
        )
    known = configuration_of(args.lake)
    if args.url is None:
        return known
    name = the_source(args.lake, args.source)
    return replace(known, sources={name: replace(known.sources[name], url=args.url)})


def _repair(config: Config, verdict: Verdict) -> None:
    """Ask the source's owner to copy the tables that differ anew."""
    from headrace.pipeline.commands.ask import ask
    from headrace.pipeline.verify.verdicts import DIFFERENT

    names = [table.name for table in verdict.of(DIFFERENT)]
    if names:
        url = config.sources[verdict.source].url
        answer = ask(config.lake.path, "resync", {"tables": names}, source=verdict.source, url=url)
        for name in answer["tables"]:
            say(
                f"{name}: is copied anew; verify it again when headrace status shows it live", file=sys.stderr
            )


# --- for a person ---------------------------------------------------------------------------------


def page(verdict: Verdict) -> Iterator[str]:
    """Yield the lines of the verdict for a person."""
    yield (
        f'{verdict.source}: compared at position "{verdict.position}", snapshot {verdict.snapshot}, '
        f"{verdict.seconds:.1f} s"
    )
    for table in verdict.tables:
        yield f"  {table.name}: {_outcome(table)}"
        for difference in table.differences:
            yield f"    {_difference(difference)}"
            yield from _rows(difference)
        if table.unlisted_rows:
            yield f"    and {table.unlisted_rows:,} more"
        if left := table.different_buckets - table.narrowed_buckets:
            yield f"    {left:,} more of {table.buckets:,} checksums differ and were not looked into"
        if table.error is not None:
            yield f"    {table.error.code}: {table.error.primary}"
            yield f"    hint: {table.error.hint}"
    for line in sentences.unmirrored_lines(verdict.unmirrored_tables):
        yield f"  {line}"


def _outcome(table: TableVerdict) -> str:
    if table.epoch is None:
        return table.outcome
    texts = f", {table.texts:,} texts of errors/" if table.texts else ""
    rows = f"{table.rows:,} rows" if table.rows == table.lake_rows else _both(table)
    return f"{table.outcome} ({rows}{texts}; {table.buckets:,} checksums; epoch {table.epoch})"


def _both(table: TableVerdict) -> str:
    return f"{table.rows:,} rows at the source, {table.lake_rows:,} in the lake"


def _difference(difference: Difference) -> str:
    said = {"missing": "missing in the lake", "extra": "only in the lake", "changed": "changed"}
    parts = [said[difference.kind]]
    parts.append(_texts(difference.key) if difference.key else "a row without a key")
    if difference.raw:
        parts.append("in errors/")
    if difference.columns:
        parts.append(f"column {', '.join(map(_printable, difference.columns))}")
    if difference.copies != 1:
        parts.append(f"{difference.copies:,} copies")
    return ": ".join((parts[0], ", ".join(parts[1:])))


def _rows(difference: Difference) -> Iterator[str]:
    if difference.source is not None:
        yield f"      source  {_texts(difference.source)}"
    if difference.lake is not None:
        yield f"      lake    {_texts(difference.lake)}"


def _texts(values: Mapping[str, str | None]) -> str:
    return " ".join(f"{_printable(name)}={_printable(value)}" for name, value in values.items())


def _printable(text: str | None) -> str:
    """A text for a terminal: bare if it is plain, else quoted, without control characters."""
    if text is None:
        return "NULL"
    plain = text != "NULL" and text.isprintable() and text and not set(text) & set(" \"'=")
    return text if plain else json.dumps(text, ensure_ascii=not text.isprintable())
