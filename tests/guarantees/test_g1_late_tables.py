"""G1, G3 and G4 for a table that is added while the source is mirrored: `headrace tables add`.

    writers all the time      pgbench on the tables that are mirrored already; on those that come `Keyed`,
                              and `Large`, whose transactions the server streams while they run
    a transaction             open across the change of the publication: the stream has its second half only

It is exact from its first mark on, definite at every time of its history, and the others do not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from headrace.cli import main as cli
from headrace.lake.format import layout
from headrace.sources.postgres.position import Lsn
from headrace_testing import validators, workload
from headrace_testing.mirror_process import Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.wholeness import balances
from tests.guarantees.conftest import OTHERS_IN_FULL, copied_by

NAMES = ("late", "late_full", "large")
LATE = tuple(f"public.{name}" for name in NAMES)
ACCOUNTS = 5_000  # so few that every time of their history can be looked at
FIRST = 1_000_000  # a key that no writer chooses


@dataclass
class Scene:
    """A mirror of pgbench's tables under load; two more tables are written and not mirrored yet."""

    mirror: Mirrored
    database: Database
    writers: ExitStack

    def tables(self, action: str, *names: str) -> int:
        arguments = ["tables", action, *names, "--lake", str(self.mirror.lake_path)]
        return cli.main([*arguments, "--url", self.database.url(user="app")])

    def onward(self, marks: int = 3) -> None:
        """Further marks with transactions."""
        known = self.mirror.lake.marks()[-1].epoch

        def moved() -> bool:
            new = [mark for mark in self.mirror.lake.marks() if mark.epoch > known]
            return sum(mark.transactions > 0 for mark in new) >= marks

        self.mirror.until(moved, "further marks")

    def acknowledged(self) -> Lsn:
        """Return the position up to which the slot may forget."""
        asked = "SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE NOT temporary"
        [(position,)] = self.database.execute(f"{asked} AND database = current_database()")
        return Lsn.parse(position)

    def streams(self) -> bool:
        """Tell whether the server has streamed a transaction that ran."""
        upstream = self.mirror.status().status.upstream
        return upstream is not None and upstream.figures["stream_txns"] > 0

    def kept(self) -> list[str]:
        """The files in which the stream is kept for tables that are being copied."""
        return list(self.mirror.lake.store.list(layout.late_folder("main")))

    def until_in_the_marks(self) -> None:
        self.mirror.until(lambda: set(LATE) <= set(self.mirror.lake.at().mark.versions), "the late tables")

    @contextmanager
    def with_inactive_triggers(self) -> Iterator[psycopg.Connection]:
        """A transaction that has written the tables already, and will again before it commits."""
        with self.database.connect(user="app") as connection:
            connection.execute("BEGIN")
            for table in NAMES:
                connection.execute(f"INSERT INTO {table} (id, n) VALUES ({FIRST}, 1)")
            yield connection
            for table in NAMES:
                connection.execute(f"UPDATE {table} SET n = 2 WHERE id = {FIRST}")
                connection.execute(f"INSERT INTO {table} (id, n) VALUES ({FIRST + 1}, 1)")
            connection.execute("COMMIT")

    def prove(self) -> None:
        """At rest: the end is the source's, and every mark and time adds up."""
        self.writers.close()
        assert self.mirror.stop() == 0, self.mirror.log()
        assert self.mirror.once() == 0, self.mirror.log()
        lake = self.mirror.lake
        assert set(LATE) <= set(lake.marks()[-1].versions)
        assert validators.exact(lake, self.database.url()) == []
        assert validators.consistent(lake) == []
        assert balances(lake).violations == []


@contextmanager
def scene(path: Path, database: Database, handoff: str, seed: int, program: Program) -> Iterator[Scene]:
    database.pgbench_tables(accounts=ACCOUNTS)
    database.execute(f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'")
    url = database.url(user="app")
    with ExitStack() as stack:
        writers = stack.enter_context(ExitStack())
        kinds: tuple[workload.Workload, ...] = (
            workload.Keyed("late", "default"),
            workload.Keyed("late_full", "full"),
            workload.Large("large", ranges=4, rows=300, pause=0.3),
        )
        for number, kind in enumerate(kinds):
            running = workload.running(kind, url, seed=seed + number, writers=1, pause=0.02)
            writers.enter_context(running)
        writers.enter_context(database.pgbench(clients=2, rate=30, accounts=ACCOUNTS))
        options = copied_by(handoff, 400_000)  # the tables grow while they are copied
        mirror = Mirrored(path / "lake", url, "public.pgbench_*", options=options, program=program)
        stack.enter_context(mirror)
        yield Scene(mirror, database, writers)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("handoff", OTHERS_IN_FULL)
def test_g1_a_late_table_is_exact_from_its_first_mark_and_the_others_do_not_wait(
    tmp_path: Path, database: Database, handoff: str, seed: int, program: Program
) -> None:
    with scene(tmp_path, database, handoff, seed, program) as late:
        late.mirror.until_live()
        with late.with_inactive_triggers():
            assert late.tables("add", "late", "public.la*") == 0
            waits = {"PG_SLOT_WAITS", "PG_SNAPSHOT_BARRED"}
            late.mirror.until(lambda: bool(waits & late.mirror.status().warnings.keys()), "a copy that waits")
            chosen = late.mirror.lake.marks()[-1].frontier
            late.onward(5)
            assert set(late.mirror.lake.marks()[-1].versions).isdisjoint(LATE)
            # What the stream has for them is in the lake: the source need not keep it.
            late.mirror.until(lambda: late.acknowledged() > Lsn.parse(chosen), "acknowledgement")
            assert late.kept()
            late.mirror.until(late.streams, "streaming")
        late.until_in_the_marks()
        first = next(mark for mark in late.mirror.lake.marks() if set(LATE) <= set(mark.versions))
        seen = late.mirror.lake.at(epoch=first.epoch)
        for table in LATE:
            rows = {row["id"]: row["n"] for row in seen.arrow(table).to_pylist()}
            assert (rows[FIRST], rows[FIRST + 1]) == (2, 1)
        late.onward()
        late.prove()
        assert late.kept() == []


KILLED = (
    "tables.add.before",
    "tables.add.after",
    "late.keep.before",
    "late.keep.after",
    "copy.range.after",
    "lake.table.after",
    "late.replay.before",
    "late.replay.after",
    "late.remove.before",
)


@pytest.mark.full
@pytest.mark.timeout(900)
@pytest.mark.parametrize("where", KILLED)
def test_g4_a_run_that_is_killed_while_a_table_comes_loses_nothing(
    tmp_path: Path, database: Database, seed: int, where: str, program: Program
) -> None:
    with scene(tmp_path, database, "xid", seed, program) as late:
        late.mirror.until_live()
        late.mirror.kill()
        table = "@public.late_full" if where.startswith(("copy.", "lake.")) else ""
        late.mirror.start(environment={"HEADRACE_FAILPOINT": f"{where}{table}=kill"})
        late.onward()
        with late.with_inactive_triggers():
            assert late.tables("add", *NAMES) == 0
            if where.startswith("late.keep"):
                late.mirror.wait()
            elif where.startswith("late."):
                late.mirror.until(lambda: len(late.kept()) > 3, "changes that are kept")
        late.mirror.wait()
        assert f"fail point {where}" in late.mirror.log()
        late.mirror.start()
        late.until_in_the_marks()
        late.onward()
        late.prove()
        assert late.kept() == []
