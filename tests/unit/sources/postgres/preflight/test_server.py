"""Versions of the server that preflight refuses or warns of; most of them are not to be had for a test."""

from __future__ import annotations

import pytest

from headrace.core.records import to_record
from headrace.sources.contract.findings import Level
from headrace.sources.postgres.preflight import PostgresWish
from headrace.sources.postgres.preflight.server import check_version
from headrace.sources.postgres.session.identity import PostgresIdentity


def found(version: int, *, runs: bool = False) -> list[tuple[str, Level]]:
    identity = PostgresIdentity("1", 1, version, "db")
    wish = PostgresWish(("*.*",), identity=to_record(identity) if runs else None)
    return [(finding.code, finding.level) for finding in check_version(identity, wish)]


@pytest.mark.parametrize("version", [150000, 150012, 160008, 170004])
def test_a_minor_that_loses_changes_of_late_tables_is_no_place_to_add_them(version: int) -> None:
    assert found(version) == [("PG_VERSION_LOSES", Level.WARNING)]
    assert found(version, runs=True) == [("PG_VERSION_LOSES", Level.ERROR)]


@pytest.mark.parametrize("version", [150013, 150018, 160009, 170005, 180000, 180004])
def test_minors_that_stream_late_tables_whole_are_taken(version: int) -> None:
    assert found(version) == found(version, runs=True) == []


def test_majors_outside_of_what_was_tried_are_told() -> None:
    assert found(140020) == [("PG_VERSION_UNSUPPORTED", Level.ERROR)]
    assert found(190000) == [("PG_VERSION_NEW", Level.WARNING)]
