"""`headrace status`: the state of a lake's sources, as their owners last reported it; needs no password."""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.cli.output import Lines, is_ascii, printable
from headrace.cli.parser import examples
from headrace.core.durations import duration, duration_text
from headrace.core.errors import Misconfigured
from headrace.lake.format.status import CONTACT_SECONDS, seconds_since

if TYPE_CHECKING:
    from datetime import datetime

    from headrace.lake.format.status import CopyStatus, TableStatus, UpstreamStatus
    from headrace.status.picture import SourcePicture

EVERY = 1.0
_ENDS = (signal.SIGINT, signal.SIGTERM)
_UNBOUND = 100_000
SHOWN = 5  # of the alterations
MAX_LAG = "60s"
_CHECK = "headrace status --lake ./lake --check"


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "status",
        help="positions, lag and tables of a lake",
        description="Shows what each source's run last wrote down, and how old that is: on a "
        "terminal as a page, elsewhere in lines. Needs no password, and asks no source.",
        epilog=examples(
            "headrace status --lake ./lake", "headrace status --lake ./lake --watch", f"{_CHECK} --max-lag 5m"
        ),
    )
    place = command.add_mutually_exclusive_group(required=True)
    place.add_argument("--lake", metavar="DIR", help="a directory, or a bucket: s3://, gs:// or abfss://")
    place.add_argument(
        "--state", metavar="DIR", help="of a Spark query straight from a source, which is asked what it holds"
    )
    shown = command.add_argument_group("what it shows")
    shown.add_argument("--json", action="store_true", help="for a program to read")
    shown.add_argument("--watch", action="store_true", help="go on showing, until Ctrl-C")
    monitoring = command.add_argument_group("for monitoring")
    monitoring.add_argument(
        "--check",
        action="store_true",
        help="exit code 0 if every source runs, is not behind and mirrors all of its tables; "
        "3: a table stopped; 4: a source is behind, or nobody runs it; of a failed run, the code that it "
        "ended with",
    )
    monitoring.add_argument(
        "--max-lag",
        metavar="DURATION",
        help=f"--check, and more than this is behind, such as 5m (default: {MAX_LAG})",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    checked = args.check or args.max_lag is not None
    if args.state is not None:
        return _show_state(args, checked)
    most = duration(args.max_lag or MAX_LAG, "--max-lag").total_seconds()
    if checked and args.watch:
        raise Misconfigured(
            "STATUS_CHECK_ENDLESS",
            "--check ends with an exit code, and --watch never ends",
            hint="give one of them",
        )
    if args.json:
        for sources in _looks(args):
            print(json.dumps({source.name: source.to_json() for source in sources}), flush=True)
    elif args.watch and Lines().is_live:
        return _watch(args.lake)
    elif Lines().is_live:
        sources = _show(args.lake)
    else:
        for sources in _looks(args):
            _console().print(_page(sources))
    if checked:
        _check(sources, most)
    return 0


def _show_state(args: argparse.Namespace, checked: bool) -> int:
    """Print the report of a query without a lake."""
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.spark.source.direct.removal import report

    if checked or args.watch:
        raise Misconfigured(
            "STATUS_STATE_ALONE",
            "--check, --max-lag and --watch are of a lake: of a query Spark itself says how it is",
            hint="headrace status --state DIR, or with --json",
        )
    found = report(args.state)
    if args.json:
        print(json.dumps(found.to_json()), flush=True)
    else:
        for line in found.lines():
            print(printable(line))
    return 0


def _show(lake: str) -> list[SourcePicture]:
    """Print the page of a lake on a terminal; return its sources."""
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.cli.layout import Sheet
    from headrace.cli.overview import overview
    from headrace.status.picture import pictures
    from headrace.status.watch import View

    console, sources = Lines(), pictures(lake)
    sheet = Sheet(console.width, is_ascii(console.file))
    console.print(Group(*overview(View(lake, time.monotonic(), sources), {}, sheet)), highlight=False)
    return sources


def _watch(lake: str) -> int:
    """Show the lake once a second on the alternate screen until a signal comes; then print the last page."""
    from headrace.cli.layout import Sheet
    from headrace.cli.overview import overview
    from headrace.status.picture import open_lake
    from headrace.status.watch import Watch

    open_lake(lake)  # raises if it is no lake
    # Block the signals and wait for them: a handler could interrupt the drawing anywhere.
    signal.pthread_sigmask(signal.SIG_BLOCK, [*_ENDS, signal.SIGWINCH])
    console, watch, came = Lines(), Watch(lake), None

    def page(keys: str = "") -> Group:
        view, sheet = watch.view(), Sheet(console.width, is_ascii(console.file))
        rates = {source.name: watch.rates(source.name) for source in view.sources}
        return Group(*overview(view, rates, sheet, console.height - 1, keys=keys))

    with Live(console=console, screen=True, auto_refresh=False) as live:
        while came is None or came.si_signo not in _ENDS:
            if not console.file.isatty():
                return 128 + signal.SIGHUP  # the terminal is gone, and SIGHUP is ignored (nohup)
            live.update(page("Ctrl-C ends"), refresh=True)
            came = signal.sigtimedwait([*_ENDS, signal.SIGWINCH], EVERY)
    console.print(page(), highlight=False)
    watch.stop()
    return 128 + came.si_signo


def _check(sources: Sequence[SourcePicture], max_lag: float) -> None:
    """Raise the first fault of the sources, with the others in its detail."""
    # Imported late, as in every command.
    from headrace.status.faults import faults

    found = [each for source in sources for each in faults(source, max_lag)]
    if found:
        first, *others = found
        for error in others:
            first = first.adding(f"and {error.code}: {error.primary}")
        raise first


def _console() -> Lines:
    """The console; a pipe has no width, so its lines are never wrapped."""
    console = Lines()
    return console if console.is_terminal else Lines(width=_UNBOUND)


def _looks(args: argparse.Namespace) -> Iterator[list[SourcePicture]]:
    """Yield the sources once, or with --watch once a second."""
    # Imported late, as in every command: --help and --version answer at once.
    from headrace.status.picture import pictures

    yield pictures(args.lake)
    while args.watch:
        time.sleep(EVERY)
        yield pictures(args.lake)


def _page(sources: list[SourcePicture]) -> Group:
    parts: list[Text | Table] = []
    for source in sources:
        parts += [Text(printable(line)) for line in _head(source)]
        parts.append(_tables(source))
        parts += [Text(printable(f"  {line}")) for line in _beside(source)]
    return Group(*parts)


def _beside(source: SourcePicture) -> Iterator[str]:
    """Yield the lines below the table: why tables stopped or wait, what is not mirrored, the last DDL."""
    # Imported late, as in every command.
    from headrace.status import sentences

    for name, each in source.tables.items():
        lines = (sentences.stop, sentences.copied_anew, sentences.waits, sentences.unseen_line)
        yield from filter(None, (line(name, each) for line in lines))
    if (gone := sentences.gone_line(source.tables)) is not None:
        yield gone
    yield from sentences.columns_left_out(source.tables)
    yield from sentences.unmirrored_lines(source.unmirrored_tables)
    for change in source.status.alterations[-SHOWN:]:
        yield sentences.alteration(change, source.tables.get(change.table))


def _head(source: SourcePicture) -> Iterator[str]:
    # Imported late, as in every command.
    from headrace.cli.overview import standing, storage

    age = "never said" if source.age is None else f"as of {source.age:.0f} s ago"
    if source.is_silent and source.age is not None:
        yield f"{source.name}: not running (last seen {source.age:.0f} s ago, {source.status.state})"
    else:
        yield f"{source.name}: {source.state} ({age})"
    position, said = source.position, source.status
    if position is not None:
        yield (
            f"  mark {source.epoch} at {position.frontier} · received {position.received_until} · "
            f"{position.lag_bytes:,} bytes{_lag(source)} · "
            f"acknowledged {position.acknowledged_until or '-'}"
        )
    if stored := storage(source):
        yield f"  {' · '.join(stored)}"
    yield from (f"  {line}" for line in standing(source))
    if said.upstream is not None:
        age = _ago(said.upstream, source.now)
        yield from (f"  {line}{age}" for line in said.upstream.lines)
    if said.running is not None and said.running.open:
        yield (
            f"  {said.running.open:,} transactions are streamed and have not ended "
            f"({said.running.open_bytes:,} bytes)"
        )
    if position is not None and position.kept_bytes:
        yield f"  kept in the lake for tables that are being copied: {position.kept_bytes:,} bytes"
    for code, primary in source.warnings.items():
        yield f"  warning {code}{_since(said.warned_since.get(code), source.now)}: {primary}"
    if said.error and not source.runs and said.state != "failed":
        yield "  no run keeps it up to date: headrace run --lake DIR goes on; its run said last:"
    if said.error:
        yield f"  error {said.error['code']}: {said.error['primary']}"
        if said.error.get("detail"):
            yield f"    {said.error['detail']}"
        yield f"    {said.error['hint']}"


def _lag(source: SourcePicture) -> str:
    """The lag by now; if the source does not answer, the most that it may be; unknown without a run."""
    if not source.runs:
        return " behind when last seen"
    lag, silent = source.lag_seconds or 0.0, source.contact_age
    is_most = silent is not None and lag == silent
    return f", {f'up to {duration_text(lag)}' if is_most else f'{round(lag, 1)} s'} behind"


def _since(moment: str | None, now: datetime) -> str:
    age = seconds_since(moment, now)
    return "" if age is None else f" (for {duration_text(age)})"


def _ago(upstream: UpstreamStatus, now: datetime) -> str:
    age = seconds_since(upstream.at, now)
    return "" if age is None or age <= CONTACT_SECONDS else f" ({duration_text(age)} ago)"


def _tables(source: SourcePicture) -> Table:
    table = Table("table", "state", "columns", "join", "rows", "copied", "last change", box=None)
    for name, each in source.tables.items():
        if each.is_missing:
            continue  # named below
        table.add_row(
            Text(printable(name)),
            _state(each),
            _columns(each),
            each.join + (f", {each.held_transactions:,} held" if each.held_transactions else ""),
            "" if each.rows is None else f"{each.rows:,}",
            _copy_progress(each.copy),
            each.last_change or "",
        )
    return table


def _state(table: TableStatus) -> str:
    """The state to print: a table that the run takes up again by itself is "pending"."""
    state = "pending" if table.follows else table.state
    return f"{state}, copied anew" if table.copied_anew else state


def _columns(table: TableStatus) -> str:
    since = table.schema_since
    return f"{table.schema_version} since {since}" if table.schema_version and since is not None else ""


def _copy_progress(copy: CopyStatus | None) -> str:
    known = copy is not None and copy.bytes_known
    return f"{100 * copy.bytes_done // known}%" if copy is not None and known else ""
