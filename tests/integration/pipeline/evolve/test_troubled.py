"""Seeded DDL beside a mirror that is killed, at fail points too, and loses its connections: marks are exact.

authors   ═ step ═ step ═ step ═══ step ═══ rest ═ step ...      each noted by a witness
mirror    ── live ✝ live ─── cut ── live ✝(fail point) ─ ✝       once, equal to the source; then the past
"""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.core.errors import ShapeChanged
from headrace.core.names import TableName
from headrace_testing import validators
from headrace_testing.mirror_process import DEADLINE, Mirrored, Program
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from tests.integration.pipeline.conftest import Mirrors
from tests.integration.pipeline.evolve.author import Author
from tests.integration.pipeline.evolve.witness import Witness
from tests.integration.pipeline.parts.tree_author import TreeAuthor

pytestmark = pytest.mark.server

TABLES = ("one", "two", "three")
TREE = "tree"  # a partitioned one, whose partitions come and go
WANTED = ("public.*", f"!public.{TREE}_*")
ROUNDS = 2
STEPS = 9  # of a round, by any author
POINTS = (
    *("lake.plan.after", "lake.table.before", "lake.table.after", "lake.mark.before", "lake.mark.after"),
    *("evolve.add.before", "evolve.add.after", "evolve.rewrite.before", "evolve.rewrite.between"),
    *("evolve.rewrite.after", "evolve.join.before", "late.keep.after", "late.replay.before"),
    *("late.replay.after", "copy.snapshot.before", "copy.range.after", "reconcile.before", "reconcile.after"),
    *("acknowledge.before", "lake.sync.before"),
)


@dataclass
class Troubled:
    """A mirror at work, all that goes wrong with it, and a table without DDL that tells how far it is."""

    database: Database
    mirror: Mirrored
    proxy: Proxy
    dice: random.Random
    beats: int = 0
    log: list[str] = field(default_factory=list)

    def start(self) -> None:
        """Run it; as often as not it is to die at a fail point, if it comes by one."""
        point = self.dice.choice([*POINTS, *[""] * len(POINTS)])
        self._note(f"start {point}")
        self.mirror.start(environment={"HEADRACE_FAILPOINT": f"{point}=kill"} if point else {})

    def kill(self) -> None:
        self._note("kill")
        self.mirror.kill()

    def trouble(self) -> None:
        """Something or nothing, in the words of the log."""
        match self.dice.choice(["nothing", "onward", "onward", "onward", "cut", "kill"]):
            case "cut":
                self._note("cut")
                self.proxy.cut()
            case "kill":
                self.kill()
                self.start()
            case "onward":
                self._onward()

    def _onward(self) -> None:
        """Wait for a mark of now. One that died at a fail point goes on."""
        self.beats += 1
        self.database.execute("INSERT INTO beat DEFAULT VALUES", user="app")
        with self._says_all():
            wait_for(self._is_there, f"beat {self.beats}", deadline=DEADLINE)

    @contextmanager
    def _says_all(self) -> Iterator[None]:
        """Add the mirror's log to a timeout."""
        try:
            yield
        except TimeoutError as error:
            error.add_note(f"running: {self.mirror.running}\n{self.mirror.log()}")
            raise

    def _is_there(self) -> bool:
        if not self.mirror.running:
            assert self.mirror.wait() == -signal.SIGKILL, self.mirror.log()
            self._note("died")
            self.start()
        return int(self.mirror.lake.at().arrow("public.beat").num_rows) >= self.beats

    def _note(self, what: str) -> None:
        self.log.append(f"-- {what}")


@dataclass
class Story:
    """Authors, their witnesses, and what befell the mirror, in one script."""

    mirrors: Mirrors
    troubled: Troubled
    authors: Sequence[Author | TreeAuthor]
    witnesses: Sequence[Witness]

    def __str__(self) -> str:
        return "\n".join(self.troubled.log)

    def step(self) -> None:
        """A step of somebody, then trouble."""
        number = self.troubled.dice.randrange(len(self.authors))
        self.authors[number].step()
        self.witnesses[number].record()
        self.troubled.trouble()
        self.witnesses[-1].record()

    def settle(self) -> None:
        """A mark that has all of the tables: a run asks once for those that changed, and may end before."""
        self.troubled.kill()
        names = {f"public.{name}" for name in (*TABLES, TREE, "beat")}
        for _ in range(5):
            with suppress(ShapeChanged):
                self.mirrors.once(*WANTED)
            if set(self.mirrors.lake.at().mark.versions) == names:
                return
        raise AssertionError(f"no mark has all tables: {self.mirrors.lake.at().mark.versions}\n{self}")


def _author(witness: Witness, seed: int, log: list[str]) -> Author | TreeAuthor:
    """Make an author of the witness's table, in the witness's session."""
    table = witness.table.name
    if table != TREE:
        return Author(witness.connection, table, seed, log, witness.look)
    author = TreeAuthor(witness.connection, table, seed)
    author.script = log
    author.begin(full=False)
    author.after = witness.look
    return author


@contextmanager
def _story(mirrors: Mirrors, program: Program, dice: random.Random) -> Iterator[Story]:
    database, log = mirrors.database, list[str]()
    server = database.server
    with ExitStack() as stack:
        proxy = stack.enter_context(Proxy(server.host, server.port))
        url = database.url(user="app", host="127.0.0.1", port=proxy.port)
        mirror = stack.enter_context(closing(Mirrored(mirrors.path, url, *WANTED, program=program)))
        troubled = Troubled(database, mirror, proxy, dice, log=log)
        authors, witnesses = list[Author | TreeAuthor](), []
        for name in (*TABLES, TREE):
            connection = stack.enter_context(database.connect(user="app"))
            witness = Witness(database.url(), TableName("public", name), connection)
            authors.append(_author(witness, dice.randrange(1 << 30), log))
            witnesses.append(witness)
        # Of the table whose columns stay every moment can be judged.
        onlooker = stack.enter_context(database.connect(user="app"))
        onlooker.autocommit = True
        witnesses.append(Witness(database.url(), TableName("public", "beat"), onlooker))
        yield Story(mirrors, troubled, authors, witnesses)


def _judge(mirrors: Mirrors, program: Program, dice: random.Random) -> None:
    database = mirrors.database
    database.execute("CREATE TABLE beat (id serial PRIMARY KEY)", user="app")
    with _story(mirrors, program, dice) as story:
        lake = mirrors.once(*WANTED)
        first = lake.marks()[-1].epoch
        for _ in range(ROUNDS):
            story.troubled.start()
            for _ in range(STEPS):
                story.step()
            story.settle()
            assert validators.exact(lake, database.url(), values=True) == [], str(story)
        assert validators.consistent(lake) == [], str(story)
        judged = [witness.judge(lake) for witness in story.witnesses]
        assert [wrong for _, wrong in judged] == [[]] * len(judged), str(story)
        assert judged[-1][0] == ROUNDS * STEPS, str(story)
        assert all("public.beat" in mark.versions for mark in lake.marks() if mark.epoch >= first)


@pytest.mark.parametrize("number", [0, *(pytest.param(n, marks=pytest.mark.full) for n in range(1, 100))])
def test_marks_amid_kills_and_cuts_are_exact_whatever_is_altered(
    mirrors: Mirrors, program: Program, seed: int, number: int
) -> None:
    _judge(mirrors, program, random.Random(f"{seed} {number}"))


@pytest.mark.full
@pytest.mark.parametrize("number", range(5))
def test_so_they_are_on_each_version(
    any_database: Database, tmp_path: Path, engine: None, program: Program, seed: int, number: int
) -> None:
    _judge(Mirrors(any_database, tmp_path / "lake", engine), program, random.Random(f"{seed} {number}"))
