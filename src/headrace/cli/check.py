"""`headrace check`: what would go wrong, found before anything is made; each finding with its remedy."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headrace.pipeline.config import CHOICES

if TYPE_CHECKING:
    from headrace.sources.postgres.preflight import Finding, Report

_STYLES = {"error": "bold red", "warning": "yellow", "info": "cyan"}


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "check",
        help="look at a database before mirroring it",
        description="Looks at settings, privileges, identities and types. Changes nothing. Exits with 0 if "
        "nothing stands against a run.",
    )
    command.add_argument("url", help="postgresql://user@host:port/database, or host=... dbname=...")
    command.add_argument("--tables", nargs="+", default=["*.*"], metavar="PATTERN")
    command.add_argument("--publication", help="one of yours, to be used as it is")
    command.add_argument("--slot", help="one of yours, to be used as it is")
    command.add_argument(
        "--handoff", choices=CHOICES["handoff"], default="slot", help="as in the configuration"
    )
    command.add_argument("--json", action="store_true", help="for a program to read")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late: whoever asks for --help or --version does not wait for all this.
    from headrace.pipeline import choosing
    from headrace.pipeline.config import SourceConfig
    from headrace.sources.postgres.preflight import examine
    from headrace.sources.postgres.session import Address

    wanted = SourceConfig(
        url=args.url,
        tables=tuple(args.tables),
        publication=args.publication,
        slot=args.slot,
        handoff=args.handoff,
    )
    report = examine(Address.parse(args.url), choosing.wish(wanted))
    if args.json:
        print(json.dumps(_record(report)))
    else:
        _show(report)
    return 2 if report.errors or not report.tables else 0


def _record(report: Report) -> dict[str, Any]:
    return {
        "version": report.identity.version,
        "tables": [str(look.name) for look in report.tables],
        "rows": report.rows,
        "bytes": report.bytes,
        "findings": [finding.as_record() for finding in report.findings],
    }


def _show(report: Report) -> None:
    console = Console()
    for finding in report.findings:
        _show_finding(console, finding)
    tables = "table" if len(report.tables) == 1 else "tables"
    console.print(
        f"{len(report.tables)} {tables} can be mirrored: "
        f"about {report.rows:,} rows, {report.bytes / 1e6:,.1f} MB",
        highlight=False,
    )


def _show_finding(console: Console, finding: Finding) -> None:
    error = finding.error
    console.print(f"{finding.level}", style=_STYLES[str(finding.level)], end=" ")
    console.print(f"{error.code}: {error.primary}", highlight=False, markup=False)
    if error.detail:
        console.print(f"    {error.detail}", highlight=False, markup=False)
    for line in finding.mend or (error.hint,):
        console.print(f"    {line}", style="dim", highlight=False, markup=False)
