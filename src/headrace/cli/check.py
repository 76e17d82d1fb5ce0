"""`headrace check`: find what would go wrong, before anything is made; each finding has its remedy."""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from headrace.cli.output import Lines, printable
from headrace.cli.parser import examples
from headrace.cli.source_options import add_source_options, source_options
from headrace.core.records import to_record

if TYPE_CHECKING:
    from headrace.pipeline.lake_size import Forecast
    from headrace.sources.contract.findings import CheckReport, Finding

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}
NAMED = 5  # tables in a line


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "check",
        help="look at a database before mirroring it",
        description="Looks at settings, privileges, identities and types. Changes nothing. Exits with 0 if "
        "nothing stands against a run.",
        epilog=examples("headrace check postgresql://me@db.example/shop --tables 'public.*'"),
    )
    command.add_argument("url", help="postgresql://user@host:port/database, or host=... dbname=...")
    command.add_argument(
        "--tables",
        nargs="+",
        action="extend",
        default=[],
        metavar="PATTERN",
        help="such as 'public.*' (default: all)",
    )
    how = command.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="for a program to read")
    how.add_argument(
        "--sql",
        action="store_true",
        help="only the statements that mend what was found, in an order that works, for psql to run",
    )
    add_source_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late: whoever asks for --help or --version does not wait for all this.
    from headrace.pipeline.lake_size import forecast
    from headrace.pipeline.state import choice
    from headrace.pipeline.state.config import parse_source, with_environment

    said = {"url": args.url, "tables": args.tables or ["*.*"], **source_options(args)}
    given = with_environment({"source": {"main": said}}, wins=False)
    wanted = parse_source("main", given["source"]["main"])
    report = choice.examine(wanted)
    hour = forecast(report.sizes.values())
    if args.json:
        print(json.dumps(_record(report, hour)))
    elif args.sql:
        for statement in report.script:
            print(statement if statement.startswith("--") else f"{statement};")
    else:
        _show(report, hour)
    return 2 if report.errors or not report.tables else 0


def _record(report: CheckReport, hour: Forecast | None) -> dict[str, Any]:
    return {
        "version": report.version,
        "tables": [str(table.name) for table in report.tables],
        "rows": report.rows,
        "bytes": report.bytes,
        "an_hour": None if hour is None else to_record(hour),
        "by_option": {option: list(map(str, names)) for option, names in report.by_option.items()},
        "left_out": {str(name): error.code for name, error in report.left_out.items()},
        "costly_ddl": {str(name): list(said) for name, said in report.costly_ddl.items()},
        "findings": [finding.to_json() for finding in report.findings],
    }


def _show(report: CheckReport, hour: Forecast | None) -> None:
    console = Lines()
    for alike in _alike(report.findings):
        _show_findings(console, alike)
    tables = "table" if len(report.tables) == 1 else "tables"
    are = "is" if len(report.left_out) == 1 else "are"
    left_out = f"; {len(report.left_out)} {are} left out" if report.left_out else ""
    _line(
        console,
        f"{len(report.tables)} {tables} can be mirrored: "
        f"about {report.rows:,} rows, {report.bytes / 1e6:,.1f} MB{left_out}",
    )
    for option, fit in report.by_option.items():
        _line(console, f"{len(fit)} more can be mirrored by {option}, as said above")
    if hour is not None:
        _line(
            console,
            f"At {hour.changes:,.0f} changes an hour (the server's statistics) the lake grows by about "
            f"{hour.files:,} files and {hour.bytes / 1e6:,.1f} MB an hour, before maintenance",
        )
    if report.costly_ddl:
        _line(console, "DDL that costs more of some than of others:")
    for said, names in _by_what_is_said(report):
        _line(console, f"    {names}: {said}", "dim")


def _by_what_is_said(report: CheckReport) -> Iterator[tuple[str, str]]:
    """Yield each line on DDL with the names of its tables."""
    tables: defaultdict[str, list[str]] = defaultdict(list)
    for name, lines in report.costly_ddl.items():
        for said in lines:
            tables[said].append(str(name))
    for said, names in tables.items():
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        yield said, ", ".join(names[:NAMED]) + more


def _alike(findings: Sequence[Finding]) -> list[list[Finding]]:
    """Group the findings that differ only in their table."""
    groups: defaultdict[tuple[object, ...], list[Finding]] = defaultdict(list)
    for finding in findings:
        said = _of_any(finding, finding.error.primary)
        groups[finding.level, finding.leaves_out, finding.code, said].append(finding)
    return list(groups.values())


def _of_any(finding: Finding, text: str) -> str:
    """The finding's text with "_" for the name of its table."""
    return text if finding.table is None else text.replace(str(finding.table), "_")


def _show_findings(console: Lines, alike: Sequence[Finding]) -> None:
    first, *others = alike
    level = f"{first.level}, left out" if first.leaves_out else f"{first.level}"
    console.print(level, style=_STYLES[str(first.level)], end=" ")
    _line(console, f"{first.code}: {first.error.primary}")
    if others:
        names = ", ".join(str(finding.table) for finding in others)
        _line(console, f"    likewise {len(others)} more: {names}")
    for said in _by_table(alike, lambda finding: finding.error.detail):
        _line(console, f"    {said}")
    for statement in dict.fromkeys(statement for finding in alike for statement in finding.mend):
        _line(console, f"    {statement};", "dim")
    for said in _by_table(alike, lambda finding: finding.advice):
        _line(console, f"    {said}", "dim")


def _by_table(alike: Sequence[Finding], part: Callable[[Finding], str | None]) -> Iterator[str]:
    """Yield a part of each finding: once if only the table differs, else once a table, with its name."""
    said = {_of_any(finding, text): text for finding in alike if (text := part(finding))}
    if len(said) == 1:
        yield from said.values()
    elif said:
        yield from (f"{finding.table}: {text}" for finding in alike if (text := part(finding)))


def _line(console: Lines, text: str, style: str | None = None) -> None:
    """Print a line without wrapping: rich takes a pipe for 80 columns, and a command must stay whole."""
    console.print(printable(text), style=style, highlight=False, markup=False, soft_wrap=True)
