"""`headrace status`: how a lake's sources are doing, as their owners last said; needs no password."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from headrace.lake.format.status import CopyStatus, TableStatus
    from headrace.status.picture import Source

EVERY = 1.0
_UNBOUND = 100_000
SHOWN = 5  # of the alterations


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "status",
        help="positions, lag and tables of a lake",
        description="Shows what each source's run last wrote down, and how old that is.",
    )
    command.add_argument("--lake", required=True, help="a directory, or s3://bucket/prefix")
    command.add_argument("--json", action="store_true", help="for a program to read")
    command.add_argument("--watch", action="store_true", help="go on showing, until Ctrl-C")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if args.json:
        for sources in _looks(args):
            print(json.dumps({source.name: source.as_record() for source in sources}), flush=True)
    elif args.watch:
        with Live(console=Console(), auto_refresh=False) as live:
            for sources in _looks(args):
                live.update(_page(sources), refresh=True)
    else:
        for sources in _looks(args):
            _console().print(_page(sources))
    return 0


def _console() -> Console:
    """Lines are whole in a pipe, whose width nobody knows."""
    console = Console()
    return console if console.is_terminal else Console(width=_UNBOUND)


def _looks(args: argparse.Namespace) -> Iterator[list[Source]]:
    """One look, or with --watch one a second."""
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.status.picture import pictures

    yield pictures(args.lake)
    while args.watch:
        time.sleep(EVERY)
        yield pictures(args.lake)


def _page(sources: list[Source]) -> Group:
    parts: list[Text | Table] = []
    for source in sources:
        parts += [Text(line) for line in _head(source)]
        parts.append(_tables(source))
        parts += [Text(f"  {line}") for line in _beside(source)]
    return Group(*parts)


def _beside(source: Source) -> Iterator[str]:
    """Say what a column is too narrow for: why tables stopped, and which nobody mirrors, the last changes."""
    # Imported late, as in every command.
    from headrace.status import sentences

    for name, each in source.tables.items():
        yield from filter(None, (sentences.stop(name, each), sentences.unseen(name, each)))
    yield from sentences.unmirrored(source.unmirrored)
    yield from map(sentences.alteration, source.said.alterations[-SHOWN:])


def _head(source: Source) -> Iterator[str]:
    age = "never said" if source.age is None else f"as of {source.age:.0f} s ago"
    yield f"{source.name}: {source.state} ({age})"
    position, said = source.position, source.said
    if position is not None:
        yield (
            f"  mark {source.epoch} at {position.frontier} · received {position.received} · "
            f"{position.lag_bytes:,} bytes, {position.lag_seconds} s behind · "
            f"acknowledged {position.acknowledged or '-'}"
        )
    for line in () if said.upstream is None else said.upstream.lines:
        yield f"  {line}"
    if said.streamed is not None and said.streamed.open:
        yield (
            f"  {said.streamed.open:,} transactions are streamed and have not ended "
            f"({said.streamed.open_bytes:,} bytes)"
        )
    if position is not None and position.kept_bytes:
        yield f"  kept in the lake for tables that are being copied: {position.kept_bytes:,} bytes"
    for code, primary in source.warnings.items():
        yield f"  warning {code}: {primary}"
    if said.error:
        yield f"  error {said.error['code']}: {said.error['primary']}"
        if said.error.get("detail"):
            yield f"    {said.error['detail']}"
        yield f"    {said.error['hint']}"


def _tables(source: Source) -> Table:
    table = Table("table", "state", "columns", "join", "rows", "copied", "last change", box=None)
    for name, each in source.tables.items():
        table.add_row(
            name,
            each.state + (", copied anew" if each.copied_anew else ""),
            _columns(each),
            f"{each.join}, {each.held_transactions} held",
            "" if each.rows is None else f"{each.rows:,}",
            _copied(each.copy),
            each.last_change or "",
        )
    return table


def _columns(table: TableStatus) -> str:
    since = table.schema_since
    return f"{table.schema_version} since {since}" if table.schema_version and since is not None else ""


def _copied(copy: CopyStatus | None) -> str:
    known = copy is not None and copy.bytes_known
    return f"{100 * copy.bytes_done // known}%" if copy is not None and known else ""
