"""`headrace demo`: the main job in about a minute, on a real PostgreSQL, with the proof at the end.

an embedded PostgreSQL 18 · pgbench writing all the time · a snapshot under that load · the stream ·
a kill -9 in the midst of it · at each of the marks, the balances of pgbench's four tables
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headrace.core.errors import Definite, Misconfigured

if TYPE_CHECKING:
    from headrace.lake.log.marks import Mark
    from headrace.lake.read.lake import Lake
    from headrace.testing.mirror_process import Mirrored
    from headrace.testing.postgres import Database

CLIENTS = 4
MARKS = 20
SHOWN = 8


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "demo",
        help="see it work: a real PostgreSQL, a live workload, a crash, and the proof",
        description="Runs an embedded PostgreSQL with pgbench writing, mirrors it, kills the mirror on "
        "purpose, and proves that the balances agree at every mark.",
    )
    command.add_argument("--lake", help="where to leave the lake (default: a temporary directory)")
    command.add_argument("--scale", type=int, default=2, help="pgbench's scale: 100,000 accounts each")
    command.add_argument("--rate", type=int, default=150, help="transactions a second")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late: the embedded server comes with the extra `demo` only.
    from headrace.testing.mirror_process import Mirrored
    from headrace.testing.postgres import postgres

    console = Console(highlight=False, soft_wrap=True)
    lake = _place(args.lake)
    with postgres() as server, server.database("bank") as database:
        console.print(f"PostgreSQL {server.version} runs on port {server.port}, with pgbench's four tables")
        database.pgbench_tables(args.scale)
        with (
            database.pgbench(clients=CLIENTS, rate=args.rate) as load,
            Mirrored(lake, database.url(user="app"), "public.*") as mirror,
        ):
            _act(console, mirror)
            load.stop()
            mirror.stop()
            mirror.once()
            _prove(console, mirror.lake, database)
    console.print(f"\nThe lake is at {lake}; headrace status --lake {lake}")
    return 0


def _place(asked: str | None) -> Path:
    if asked is None:
        return Path(tempfile.mkdtemp(prefix="headrace-demo-")) / "lake"
    place = Path(asked).absolute()
    if place.exists() and any(place.iterdir()):
        raise Misconfigured(
            "DEMO_LAKE_NOT_EMPTY", f'"{asked}" is not empty', hint="give a directory that is not there yet"
        )
    return place


def _act(console: Console, mirror: Mirrored) -> None:
    """Act it out: a snapshot under load, a stream, a crash, and going on."""
    begun = time.monotonic()
    console.print(f"{CLIENTS} clients are writing; headrace begins its snapshot")
    mirror.until_live()
    console.print(
        f"after {time.monotonic() - begun:.0f} s every table is exact; "
        f"{_held(mirror.lake)} transactions of the stream were in the copies already"
    )
    _onward(mirror)
    console.print("[bold]kill -9[/bold]")
    mirror.kill()
    begun = time.monotonic()
    mirror.start()
    _onward(mirror)
    console.print(f"started again: {MARKS} further marks within {time.monotonic() - begun:.0f} s")


def _held(lake: Lake) -> int:
    from headrace.pipeline.state.records import tables_of

    return max(record.held for record in tables_of(lake.catalog()).values())


def _onward(mirror: Mirrored) -> None:
    reached = mirror.lake.marks()[-1].epoch
    mirror.until(lambda: mirror.lake.marks()[-1].epoch >= reached + MARKS, f"{MARKS} further marks")


def _sums(lake: Lake, mark: Mark) -> list[int]:
    from headrace.testing.wholeness import BALANCES

    cut = lake.at(epoch=mark.epoch)
    tables = [(f"public.{table}", column) for table, column in BALANCES.items()]
    return [int(cut.polars(name).select(column).sum().collect().item()) for name, column in tables]


def _prove(console: Console, lake: Lake, database: Database) -> None:
    """At every mark and every time the balances agree; and the end equals the source."""
    from headrace.testing import validators
    from headrace.testing.wholeness import balances

    verdict = balances(lake, sample=None)
    wrong = [*verdict.violations, *validators.exact(lake, database.url())]
    console.print("\n  mark   accounts        tellers       branches        history")
    for mark in [mark for mark in lake.marks() if len(mark.versions) == 4][-SHOWN:]:
        row = "".join(f"{value:>15,}" for value in _sums(lake, mark))
        console.print(f"{mark.epoch:>6}{row}")
    if wrong:
        raise Definite(
            "DEMO_DISPROVED",
            "the mirror is not exact",
            detail="; ".join(map(str, wrong[:3])),
            hint="please report this: it is a bug",
        )
    console.print(
        f"\n[bold green]at each of {verdict.marks} marks, and at each of {verdict.times} times in history, "
        "the balances of all four tables agree;\nat the end every table equals its source, row for row"
    )
