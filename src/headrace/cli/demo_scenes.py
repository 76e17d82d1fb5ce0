"""The scenes of `headrace demo`: a real server of each kind, a workload, and the law that it always keeps.

postgres          pgbench's four tables: the balances of all four agree
mysql, mariadb    transfers over two tables: both tables hold all parts of a transfer, or neither holds any
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from headrace.core.names import TableName

if TYPE_CHECKING:
    from headrace.lake.log.marks import Mark
    from headrace.lake.read.lake import Lake
    from headrace_testing.wholeness import Verdict

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
