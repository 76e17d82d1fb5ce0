"""`headrace views`: statements by which another engine reads all tables of a lake at one mark."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from headrace.cli.output import printable
from headrace.cli.parser import examples


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "views",
        help="print statements for another engine: all tables at one mark",
        description="Prints statements that make every table of a lake a view, all at one mark: run them in "
        "Spark (with headrace installed, or with Delta's connector), DuckDB (with its extension delta), "
        "Python with Polars, Trino or Databricks. The first line says where headrace's own tests run them.",
        epilog=examples("headrace views --lake ./lake --engine duckdb"),
    )
    command.add_argument(
        "--lake", metavar="DIR", required=True, help="a directory, or a bucket: s3://, gs:// or abfss://"
    )
    command.add_argument(
        "--engine", required=True, metavar="NAME", help="spark, delta, duckdb, polars, trino or databricks"
    )
    moment = command.add_mutually_exclusive_group()
    moment.add_argument(
        "--epoch", type=int, metavar="N", help="the mark of this number (default: the newest)"
    )
    moment.add_argument(
        "--at", metavar="MARK|POSITION|TIMESTAMP", help="as in `headrace sql`, where a mark is"
    )
    command.add_argument("--source", metavar="NAME", help="only this source of the lake")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.lake.read.lake import Lake
    from headrace.lake.read.views import engine_named, statements

    engine = engine_named(args.engine)
    moment = args.epoch if args.epoch is not None else args.at
    if isinstance(moment, str) and moment.isdecimal():
        moment = int(moment)
    is_shown = sys.stdout.isatty()
    for statement in statements(Lake(args.lake).cut(moment, args.source), engine):
        print(printable(statement) if is_shown else statement)
    return 0
