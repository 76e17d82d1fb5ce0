"""A moment of the source's clock: what was committed by then, one answer for ever, or none yet."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from time import time
from typing import Any

import psycopg
import pytest

from headrace.core.errors import Misconfigured
from headrace.lake.log import commit
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask as asking
from headrace.pipeline.state.ledger import Ledger
from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


@pytest.fixture
def lake(mirrors: Mirrors, database: Database) -> Lake:
    """Copy a table with three rows."""
    database.execute("CREATE TABLE items (id int PRIMARY KEY)", user="app")
    database.execute("INSERT INTO items SELECT generate_series(1, 3)", user="app")
    return mirrors.once()


def _held(lake: Lake, moment: datetime) -> int:
    """Count the rows of that moment, beside those that were copied."""
    return int(lake.at(timestamp=moment).arrow("public.items").num_rows) - 3


def test_a_moment_has_one_answer_for_ever_though_timestamps_go_backwards(
    mirrors: Mirrors, lake: Lake, database: Database
) -> None:
    """A transaction that was replicated from elsewhere is streamed under the time of its first commit."""
    begin = datetime.now(UTC)
    offsets = [10, 30, 20, 40, 25, 60, 50]  # milliseconds
    # How many of the transactions are in the longest prefix that is not later. Behind the fourth is a mark
    # that is complete until after all of these moments: what comes after it counts as later.
    want = {5: 0, 10: 1, 19: 1, 29: 1, 30: 3, 39: 3, 40: 4, 59: 4, 60: 4, 99: 4}

    def held() -> dict[int, int]:
        return {moment: _held(lake, begin + timedelta(milliseconds=moment)) for moment in want}

    with database.connect() as connection:
        connection.autocommit = True
        connection.execute("SELECT pg_replication_origin_create('elsewhere')")
        connection.execute("SELECT pg_replication_origin_session_setup('elsewhere')")
        for number, offset in enumerate(offsets):
            _commit(connection, number, begin + timedelta(milliseconds=offset))
            if number == 3:
                wait_for(lambda: datetime.now(UTC) > begin + timedelta(milliseconds=100), "those moments")
                mirrors.once()
                assert held() == want
        connection.execute("SELECT pg_replication_origin_session_reset()")
        connection.execute("SELECT pg_replication_origin_drop('elsewhere')")
    mirrors.once()
    assert held() == want
    until = lake.at().mark.complete_until
    assert until is not None
    assert _held(lake, until) == 7
    asking.ask(str(mirrors.path), "maintain", {"marks": "0s", "grace": "0s"})
    assert held() == want


def _commit(connection: psycopg.Connection[Any], number: int, moment: datetime) -> None:
    with connection.transaction():
        connection.execute("SELECT pg_replication_origin_xact_setup(%s, %s)", [f"0/{number + 1:X}", moment])
        connection.execute("INSERT INTO public.items VALUES (%s)", [900 + number])


def test_changes_that_are_kept_for_a_rewritten_table_are_later_than_the_moment_before_them(
    mirrors: Mirrors, lake: Lake, database: Database
) -> None:
    """They come into the table's history with a later epoch than the one that received them."""
    [(moment,)] = database.execute("SELECT clock_timestamp()")
    database.execute(
        "INSERT INTO items VALUES (4); ALTER TABLE items ADD COLUMN more int DEFAULT 7", user="app"
    )
    mirrors.once()
    assert "late" in [mark.kind for mark in lake.marks()]
    assert _held(lake, moment) == 0
    assert int(lake.at().arrow("public.items").num_rows) == 4


def test_what_the_source_may_have_committed_and_no_mark_holds_is_refused(
    mirrors: Mirrors, lake: Lake, database: Database
) -> None:
    database.execute("INSERT INTO items VALUES (900)", user="app")
    moment = datetime.now(UTC)
    Ledger(
        open_store(mirrors.path), "main"
    )  # whoever takes the source over publishes a mark that holds no more
    assert lake.at().mark.published_at > moment
    for ask in (
        lambda: lake.at(timestamp=moment),
        lambda: lake.changes(None, "public.items", until=moment),
        lambda: lake.cut(moment.isoformat()),  # as `headrace sql --at` does
    ):
        with pytest.raises(Misconfigured) as refused:
            ask()
        assert refused.value.code == "LAKE_NOT_REACHED"
    mirrors.once()
    assert _held(lake, moment) == 1
    still = datetime.now(UTC)
    mirrors.once()  # which finds nothing new, and says so
    assert _held(lake, still) == 1


@pytest.mark.parametrize("minutes", [-10, 10])
def test_a_moment_before_the_mirror_began_is_refused_by_the_clock_of_the_source(
    mirrors: Mirrors, database: Database, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    """Whatever the clock says of the machine that writes the lake."""

    class Off(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Off:
            return cls.fromtimestamp(time() + 60 * minutes, tz)

    monkeypatch.setattr(commit, "datetime", Off)
    database.execute("CREATE TABLE items (id int PRIMARY KEY)", user="app")
    database.execute("INSERT INTO items SELECT generate_series(1, 3)", user="app")
    [(early,)] = database.execute("SELECT clock_timestamp()")
    database.execute("INSERT INTO items VALUES (900)", user="app")
    lake = mirrors.once()
    for count in range(2):
        with pytest.raises(Misconfigured) as refused:
            lake.at(timestamp=early)
        assert refused.value.code == "LAKE_NO_MARK"
        [(moment,)] = database.execute("SELECT clock_timestamp()")
        database.execute(f"INSERT INTO items VALUES ({901 + count})", user="app")
        mirrors.once()
        assert _held(lake, moment) == 1 + count


def test_while_a_lost_position_is_left_no_mark_is_made_for_the_clock(
    mirrors: Mirrors, lake: Lake, database: Database
) -> None:
    database.execute(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots"
        " WHERE database = current_database()"
    )
    before = lake.at().mark
    unseen = datetime.now(UTC)
    database.execute("DELETE FROM items WHERE id = 1", user="app")
    mirrors.once(reconcile="auto")
    with pytest.raises(Misconfigured) as refused:
        lake.at(timestamp=unseen)
    assert refused.value.code == "LAKE_NO_MARK"
    told = re.fullmatch(r"nothing is known between (.*) and (.*)", str(refused.value.detail))
    assert told
    assert before.complete_until == datetime.fromisoformat(told[1])
    assert _held(lake, before.complete_until) == 0
    assert _held(lake, datetime.fromisoformat(told[2])) == -1
    marks = [mark for mark in lake.marks() if mark.epoch > before.epoch]
    assert len([mark for mark in marks if mark.kind == "empty"]) <= 3
