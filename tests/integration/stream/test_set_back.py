"""A server that was set back on its own timeline, and has written past us before we came back.

Its identity is the same and its log is long enough: only what it does not send any more gives it away.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.core.errors import HeadraceError
from headrace.core.position import Position
from headrace.ingest.last_commits import LastCommits
from headrace.sources.postgres.decode.decoder import PostgresDecoder
from headrace.spool.layout import erase
from headrace_testing.copies import Backup
from headrace_testing.postgres import postgres
from tests.integration.stream.harness import Stage, stage
from tests.places import place_at

pytestmark = pytest.mark.server


def test_a_server_that_was_set_back_is_told_by_what_it_does_not_send_again(tmp_path: Path) -> None:
    """Known from the spool or from the lake, and also where the new life has nothing for us."""
    with postgres() as server, server.database() as database, stage(database, tmp_path) as staged:
        database.execute("INSERT INTO t VALUES (1, 'in both lives')")
        backup = Backup.of(server)
        staged.start()
        for number in (2, 3):
            database.execute("INSERT INTO t VALUES (%s, 'of the life that is gone')", [number])
        staged.catch_up()
        staged.receiver.stop()
        records = staged.reader.transactions(0)
        id_of = PostgresDecoder(int(records["transaction"].max())).transaction_id
        last = LastCommits(staged.frontier.time).followed_by(records, id_of)
        frontier = place_at(staged.reader.frontier() or 0)
        backup.restore()
        database.execute("CREATE TABLE another AS SELECT generate_series(1, 20000)")
        spooled = refusal(staged)
        assert f"{place_at(int(records['time'][1]))}" in (spooled.detail or "")
        database.execute("INSERT INTO t VALUES (9, 'of this life')")
        erase(staged.feed.folder)  # as on a new machine: only the lake remembers
        staged.vary(last=last)
        for _ in range(2):  # it is not acknowledged, so that it is told each time
            refusal(staged, frontier)
        # Where no commit is remembered there is its transaction: not even begun in this life, or aborted.
        staged.vary(last=replace(LastCommits(frontier.time), newest=(last.newest or 0) + (1 << 20)))
        refusal(staged, frontier)
        with database.connect() as connection, connection.transaction(force_rollback=True):
            [(aborted,)] = connection.execute("SELECT pg_current_xact_id()::text::bigint").fetchall()
        staged.vary(last=replace(LastCommits(frontier.time), newest=aborted))
        refusal(staged, frontier)


def refusal(staged: Stage, frontier: Position | None = None) -> HeadraceError:
    error = staged.refusal(frontier)
    assert (error.code, error.family) == ("PG_HISTORY_CHANGED", "definite")
    assert "--reconcile" in error.hint
    return error
