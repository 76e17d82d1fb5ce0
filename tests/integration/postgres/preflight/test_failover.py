"""Faults that keep a standby from taking over our stream: found, mended as the hint says, and gone."""

from __future__ import annotations

import pytest

from headrace.sources.contract.findings import Finding, Level, Wish
from headrace.sources.postgres.preflight import PostgresWish, examine
from headrace.sources.postgres.session.address import PostgresAddress
from headrace_testing.cluster import STANDBY, cluster
from headrace_testing.postgres import Setting
from headrace_testing.postmaster import wait_for
from tests.background import repeat

pytestmark = pytest.mark.server


def test_check_names_what_keeps_a_standby_from_taking_over() -> None:
    """Two hosts in the address show the settings of the standby, one shows what it does."""
    with cluster() as pair:
        pair.primary.execute("CREATE DATABASE shop")
        lacking: dict[str, Setting] = {"sync_replication_slots": False, "hot_standby_feedback": False}
        other = pair.join(database="shop", primary_slot_name="", **lacking)
        pair.primary.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')")
        url = pair.primary.url("shop")
        both = (
            f"host=127.0.0.1,127.0.0.1 port={other.port},{pair.primary.port} user=postgres dbname=shop"
            " target_session_attrs=read-write"
        )
        assert codes(url) == {"PG_FAILOVER_NO_SLOT", "PG_FAILOVER_NO_SYNC"}
        assert codes(both) == {"PG_FAILOVER_NO_SLOT", "PG_FAILOVER_NO_SYNC", "PG_FAILOVER_NO_FEEDBACK"}
        other.set(primary_slot_name=STANDBY)
        left = {"PG_FAILOVER_NO_SYNC", "PG_FAILOVER_NO_FEEDBACK", "PG_FAILOVER_AHEAD"}
        wait_for(lambda: codes(url) == left, "the standby streams through a slot")
        assert codes(url, slot_failover="off") == set()
        assert "PG_FAILOVER_SLOT" in codes(url, slot="theirs", publication="theirs", serious=False)
        other.set(hot_standby_feedback=True, sync_replication_slots=True)
        wait_for(lambda: codes(both) == {"PG_FAILOVER_AHEAD"}, "the standby synchronises slots")
        for finding in findings(url):
            for statement in finding.mend:
                pair.primary.execute(statement)
        wait_for(lambda: codes(both) == set(), "nothing is missing")
        with repeat(lambda: pair.primary.execute("SELECT pg_log_standby_snapshot()"), every=0.2):
            other.execute("SELECT pg_create_logical_replication_slot('theirs', 'pgoutput')", database="shop")
        assert codes(both, slot="theirs", publication="theirs") == {"PG_FAILOVER_SLOT_TAKEN"}
        other.stop()
        wait_for(lambda: codes(both) == {"PG_FAILOVER_HELD"}, "the standby is gone")
        assert "PG_FAILOVER_UNASKED" in codes(both, serious=False)


def findings(url: str, **options: str) -> list[Finding]:
    """Return the findings of `headrace check` on failovers."""
    wish = PostgresWish.of(Wish(("*.*",), options))
    found = examine(PostgresAddress.parse(url), wish).findings
    return [finding for finding in found if finding.code.startswith("PG_FAILOVER")]


def codes(url: str, *, serious: bool = True, **options: str) -> set[str]:
    """The codes of the findings; of those that are serious, unless it is asked for all."""
    return {f.code for f in findings(url, **options) if not serious or f.level is Level.WARNING}
