"""Workloads commit what they count, go on over a crash, and do all that their mirror is to be tried with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from headrace_testing.oracle.contract import Session
from headrace_testing.oracle.registry import oracle_of
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.workload import Bag, Keyed, Large, Transfers, Workload, make_tables, running

pytestmark = pytest.mark.server

TORN = """
    SELECT transfer, revision FROM (SELECT * FROM transfer_out UNION ALL SELECT * FROM transfer_in) both_sides
    GROUP BY transfer, revision HAVING count(*) <> 2 * max(parts)
"""


def test_transfers_are_whole_at_the_source_over_a_crash(database: Database, seed: int) -> None:
    with running(Transfers(), database.url(user="app"), seed=seed, writers=3) as work:
        wait_for(lambda: work.committed > 60, "transfers commit")
        database.server.crash()
        database.server.start()
        before = work.committed
        wait_for(lambda: work.committed > before + 60, "transfers commit again")
    assert database.execute(TORN) == []
    assert database.execute("SELECT count(*) > 0 FROM transfer_out WHERE revision > 0") == [(True,)]
    assert work.rolled_back > 0


class Interrupted:
    """A session in which something happens after its first statement."""

    def __init__(self, session: Session, happens: Callable[[], None]) -> None:
        self.dialect = session.dialect
        self._session = session
        self._happens: list[Callable[[], None]] = [happens]

    def __getattr__(self, name: str) -> Any:
        def then(*arguments: Any) -> Any:
            answer = getattr(self._session, name)(*arguments)
            while self._happens:
                self._happens.pop()()
            return answer

        return then


@pytest.mark.parametrize("change", ["_revise", "_remove"])
def test_a_transfer_that_commits_between_two_statements_stays_whole(database: Database, change: str) -> None:
    work, url = Transfers(), database.url(user="app")
    make_tables(url, work)
    with oracle_of(url).session(url) as opening, oracle_of(url).session(url) as changing:
        for name in work.names:
            opening.execute(f"INSERT INTO {name} VALUES (1, 0, 1, 0, 7)")
        getattr(work, change)(Interrupted(changing, opening.commit), 1)
        changing.commit()
    assert database.execute(TORN) == []


def kinds(database: Database, slot: str) -> set[str]:
    """Name what pgoutput sent: I, D, U and how an update showed its old row, and `u` for unchanged TOAST."""
    found = set()
    for (message,) in database.execute(
        "SELECT data FROM pg_logical_slot_get_binary_changes(%s, NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p')",
        [slot],
    ):
        kind = chr(message[0])
        if kind == "U":
            kind += {"K": "K", "O": "O", "N": ""}[chr(message[5])]
            if message.endswith(b"u"):  # the last column, which no value of ours ends with a u
                found.add("u")
        found.add(kind)
    return found & {"I", "U", "UK", "UO", "D", "u"}


@pytest.mark.parametrize(
    ("workload", "sent"),
    [
        (Keyed(), {"I", "U", "UK", "D", "u"}),
        (Keyed(identity="full"), {"I", "UO", "D", "u"}),
        (Bag(), {"I", "UO", "D"}),
        (Transfers(), {"I", "U", "D"}),
        (Large(pause=0.0), {"I", "U", "D"}),
    ],
    ids=["keyed", "keyed-full", "bag", "transfers", "large"],
)
def test_a_workload_sends_every_kind_of_change(
    database: Database, workload: Workload, sent: set[str], seed: int
) -> None:
    database.execute("CREATE PUBLICATION p FOR ALL TABLES")
    database.execute("SELECT pg_create_logical_replication_slot('witness', 'pgoutput')")
    with running(workload, database.url(user="app"), seed=seed, writers=2) as work:
        wait_for(lambda: work.committed > 150, "the workload commits")
    assert kinds(database, "witness") == sent
    assert work.failed + work.in_doubt < work.committed


@pytest.mark.parametrize("kind", [Keyed, Bag])
def test_a_single_writer_is_repeated_by_its_seed(
    database: Database, kind: type[Keyed | Bag], seed: int
) -> None:
    contents = []
    for name, dice in (("first", seed), ("second", seed), ("third", seed + 1)):
        with running(kind(name), database.url(user="app"), seed=dice, writers=1, times=40) as work:
            wait_for(lambda work=work: work.finished, "forty transactions")  # type: ignore[misc]
        contents.append(database.execute(f"SELECT t::text FROM {name} t ORDER BY 1"))
    assert contents[0] == contents[1]
    assert contents[0] != contents[2]


def test_a_writer_that_cannot_explain_an_error_fails_the_test(database: Database) -> None:
    work = running(Keyed("nowhere"), database.url(user="app"), seed=1, prepare=False)
    with pytest.raises(psycopg.errors.UndefinedTable), work as writing:
        wait_for(lambda: writing.finished, "the writers have failed")
