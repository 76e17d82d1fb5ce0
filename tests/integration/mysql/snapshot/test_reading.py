"""Tables of real servers, read in pieces at one moment that is joined to the log."""

from __future__ import annotations

import pytest

from headrace.core.position import STEP
from headrace.testing.mysql import Database
from tests.integration.mysql.snapshot.copies import BASE, copied
from tests.integration.mysql.snapshot.moments import TOTAL, Transfers, executed, until

pytestmark = pytest.mark.server


def test_all_pieces_show_the_moment_of_the_handoff_while_others_write(
    bank: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = executed(bank)
    with Transfers(bank, 4) as transfers:
        until(lambda: transfers.done > 50, "nobody writes")
        with copied(bank, "a", "b", "moves", readers=3) as copy:
            handoff = copy.snapshot.handoff
            rows = copy.rows()
    money = sum(sum(rows[name]["v"].to_pylist()) for name in ("a", "b"))
    frontier = handoff.until
    assert frontier is not None
    # Nothing else wrote to this server: each transfer is one transaction of the log.
    assert (money, rows["moves"].num_rows) == (TOTAL, (frontier.time - BASE - before) // STEP)
    for own in copy.handoffs:
        assert own.until is not None
        assert own.until == frontier
