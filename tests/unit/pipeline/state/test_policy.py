"""Reactions by family: who is tried again, how long, and what a command's exit code says."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.pipeline.state import policy
from headrace.pipeline.state.policy import Patience


@pytest.mark.parametrize(
    ("kind", "again", "code"), [(Definite, False, 3), (Transient, True, 4), (Misconfigured, False, 2)]
)
def test_a_family_decides_what_follows(kind: type[HeadraceError], again: bool, code: int) -> None:
    error = kind("SOME_CODE", "something", hint="do something")
    assert policy.retries(error) is again
    assert policy.exit_code(error) == code


def test_a_bug_is_never_tried_again() -> None:
    assert not policy.retries(ValueError("a bug"))


def test_a_server_that_was_never_met_is_not_waited_for() -> None:
    unreachable = Transient("PG_UNREACHABLE", "no connection", hint="check host and port")
    assert policy.retries(unreachable)
    assert not policy.retries(unreachable, met=False)
    assert policy.retries(Transient("PG_CONNECTION_LOST", "lost", hint="wait"), met=False)


def test_a_service_waits_longer_and_longer_but_for_ever() -> None:
    pauses = list(islice(Patience().pauses(), 30))
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 < pauses[-1] <= policy.LONGEST_PAUSE


def test_once_gives_up_after_some_attempts() -> None:
    assert len(list(Patience(attempts=5).pauses())) == 5


@pytest.mark.parametrize(
    ("code", "spoilt"), [("SPOOL_DAMAGED", True), ("SPOOL_DISCARDED", True), ("SPOOL_BUSY", False)]
)
def test_a_spool_of_which_a_part_is_wrong_or_gone_is_forgotten(code: str, spoilt: bool) -> None:
    assert policy.spoils_the_spool(Transient(code, "something", hint="wait")) is spoilt
