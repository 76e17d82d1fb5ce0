"""Rate at which a backlog becomes marks, beside PostgreSQL's built-in subscription: same log, same run, TCP.

    python -m bench.backlog [--shape NAME ...] [--changes N] [--repeat N]

Both have copied the tables already and are stopped; then the log is written: inserts, updates of rows
from before, deletes. The subscription is measured from ENABLE to the state in which its tables have the last
rows; ours from the call of `mirror(once=True)`, in a Spark that is up and warm, to its return: connecting,
taking over and the acknowledgement are in it. The two take turns. The processor time is that of all our
processes.

The shapes of a backlog: `usual` has transactions of 800 changes, `rows_100` and `rows_4` of so many;
`tables_20` spreads those of 4 over 20 tables; `wide` has 50 columns, `texts` rows of 2 kB, `keyless` no key,
and `full` a key and REPLICA IDENTITY FULL. Of `usual`, Debezium's engine without a sink reads the same log as
well, from its first record to its last (`peers.debezium`).
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import headrace
from bench.peers.debezium import of_postgres
from headrace.spark.session import RunningSpark, SparkConfig, open_session
from headrace_testing.costs import ROLES, own_processor
from headrace_testing.figures import keep
from headrace_testing.postgres import Database, postgres
from headrace_testing.postmaster import wait_for

BEFORE = 200_000
KEY = "PRIMARY KEY (id)"


@dataclass(frozen=True, slots=True)
class Shape:
    """A kind of backlog: its tables, and what one transaction does to one of them."""

    columns: str = "id bigint, a integer, b text, c text, d numeric(12,2), e timestamptz, f boolean"
    values: str = "i, i % 1000, 'text ' || i, md5(i::text), i / 7.0, now(), i % 2 = 0"
    inserted: int = 500  # rows by a transaction, which then updates a half of them and deletes a tenth
    tables: int = 1
    key: str = KEY
    identity: str = "DEFAULT"

    @property
    def changes(self) -> int:
        return self.inserted + self.inserted // 2 + self.inserted // 10

    def create(self, database: Database) -> None:
        for number in range(self.tables):
            database.execute(f"CREATE TABLE t{number} ({self.columns}{', ' + self.key if self.key else ''})")
            if not self.key:
                database.execute(f"CREATE INDEX ON t{number} (id)")  # the subscription looks rows up by it
            database.execute(f"ALTER TABLE t{number} REPLICA IDENTITY {self.identity}")

    def fill(self, database: Database, rows: int = BEFORE) -> None:
        for number in range(self.tables):
            database.execute(
                f"INSERT INTO t{number} SELECT {self.values} FROM generate_series(1, {rows // self.tables}) i"
            )

    def write(self, database: Database, changes: int, first: int) -> int:
        """Write a backlog of so many changes or a few less, and return the id behind its last row."""
        transactions = changes // self.changes
        last = f"low + {self.inserted}"
        statements = (
            f"INSERT INTO %1$I SELECT {self.values.replace('%', '%%')}"
            f" FROM generate_series($1, $1 + {self.inserted - 1}) i",
            f"UPDATE %1$I SET a = a + 1 WHERE id BETWEEN $1 AND $1 + {self.inserted // 2 - 1}",
            f"DELETE FROM %1$I WHERE id BETWEEN $1 AND $1 + {self.inserted // 10 - 1}",
        )
        runs = "".join(f"EXECUTE format($s${each}$s$, t) USING low;\n" for each in statements)
        database.execute(
            f"DO $d$ DECLARE low bigint := {first}; t text; BEGIN FOR n IN 0 .. {transactions - 1} LOOP\n"
            f"t := 't' || n % {self.tables};\n{runs} low := {last}; COMMIT;\nEND LOOP; END $d$"
        )
        return first + transactions * self.inserted


_WIDE = [
    ("integer", "i"),
    ("text", "'text ' || i"),
    ("numeric(12,2)", "i / 7.0"),
    ("timestamptz", "now()"),
] * 12
SHAPES = {
    "usual": Shape(),
    "rows_100": Shape(inserted=62),
    "rows_4": Shape(inserted=3),
    "tables_20": Shape(inserted=3, tables=20),
    "wide": Shape(
        columns="id bigint, a integer, " + ", ".join(f"c{at} {kind}" for at, (kind, _) in enumerate(_WIDE)),
        values="i, i % 1000, " + ", ".join(value for _, value in _WIDE),
    ),
    "texts": Shape(columns="id bigint, a integer, b text", values="i, i % 1000, repeat(md5(i::text), 64)"),
    "keyless": Shape(key="", identity="FULL"),
    "full": Shape(identity="FULL"),
}  # fmt: skip


def config(database: Database, lake: Path) -> dict[str, Any]:
    source = {"url": database.url(), "tables": ["public.*"]}
    return {"lake": {"path": str(lake)}, "source": {"main": source}}


def subscribed(target: Database, there: str) -> float:
    """Let the built-in subscription catch up; the seconds that it takes."""
    begun = time.perf_counter()
    target.execute("ALTER SUBSCRIPTION s ENABLE")
    wait_for(lambda: bool(target.execute(there)), "the last row", deadline=900)
    seconds = time.perf_counter() - begun
    target.execute("ALTER SUBSCRIPTION s DISABLE")
    return seconds


def mirrored(database: Database, lake: Path, session: RunningSpark) -> float:
    begun = time.perf_counter()
    headrace.mirror(config(database, lake), spark=session.spark, once=True)
    return time.perf_counter() - begun


def prepare(stack: ExitStack, session: RunningSpark, lake: Path, shape: Shape) -> tuple[Database, Database]:
    """Two servers with the tables; the subscription and the mirror have copied them and rest."""
    source = stack.enter_context(stack.enter_context(postgres()).database("source"))
    target = stack.enter_context(stack.enter_context(postgres()).database("target"))
    for database in (source, target):
        shape.create(database)
    shape.fill(source)
    source.execute("CREATE PUBLICATION p FOR ALL TABLES")
    target.execute(
        f"CREATE SUBSCRIPTION s CONNECTION '{source.conninfo}' PUBLICATION p WITH (streaming = off)"
    )
    waiting = "SELECT 1 FROM pg_subscription_rel WHERE srsubstate <> 'r'"
    wait_for(lambda: not target.execute(waiting), "the subscription's copy", deadline=300)
    target.execute("ALTER SUBSCRIPTION s DISABLE")
    mirrored(source, lake, session)
    return source, target


def measured(session: RunningSpark, name: str, changes: int, repeat: int) -> None:
    shape, ours, theirs, debezium, first = SHAPES[name], [], [], [], BEFORE + 1
    used = dict.fromkeys(ROLES, 0.0)
    with ExitStack() as stack:
        lake = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "lake"
        source, target = prepare(stack, session, lake, shape)
        engine = of_postgres(source, lake.parent) if name == "usual" else None
        for _ in range(repeat):
            first = shape.write(source, changes, first)
            table = (changes // shape.changes - 1) % shape.tables
            theirs.append(subscribed(target, f"SELECT 1 FROM t{table} WHERE id = {first - 1}"))
            before = own_processor()
            ours.append(mirrored(source, lake, session))
            used = {role: used[role] + seconds - before[role] for role, seconds in own_processor().items()}
            if engine:
                debezium.append(engine.read(changes // shape.changes * shape.changes).seconds)
        target.execute("ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s")
        source.execute("SELECT pg_drop_replication_slot('s')")
    us, them = statistics.median(ours), statistics.median(theirs)
    changes = changes // shape.changes * shape.changes
    millions = repeat * changes / 1e6
    each = ", ".join(f"{role} {seconds / millions:.1f}" for role, seconds in used.items())
    print(
        f"{name:>10} {changes:>11,} {changes / them:>12,.0f} {changes / us:>12,.0f} {them / us:>8.2f}"
        f" {sum(used.values()) / millions:>10.1f}   {each}",
        flush=True,
    )
    if debezium:
        of_debezium = statistics.median(debezium) / us
        print(f"           Debezium's engine without a sink: ours has {of_debezium:.1f} times its rate")
        keep(of_debezium=of_debezium)
    suffix = "" if name == "usual" else f"_{name}"
    figures = {
        "of_subscription": them / us,
        "changes_a_second": changes / us,
        "cpu": sum(used.values()) / millions,
    }
    keep(**{f"{figure}{suffix}": value for figure, value in figures.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description="backlog to marks, beside the built-in subscription")
    parser.add_argument("--shape", nargs="+", choices=tuple(SHAPES), default=list(SHAPES))
    parser.add_argument("--changes", type=int, help="default: 1,600,000, and 400,000 of what is not usual")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    print("     shape     changes subscription     headrace    ratio  CPU s/mio.   of these by process")
    with open_session(SparkConfig(master="local[2]")) as session:
        for name in args.shape:
            measured(session, name, args.changes or (1_600_000 if name == "usual" else 400_000), args.repeat)


if __name__ == "__main__":
    main()
