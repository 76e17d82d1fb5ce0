"""Reactions by family: who is tried again, how long, and what a command's exit code says."""

from __future__ import annotations

from itertools import islice

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.records import from_record, to_record
from headrace.lake.log.durable import fenced_error
from headrace.pipeline.state import policy
from headrace.pipeline.state.policy import Patience
from headrace.sources.mysql.copy.locks import LockDenied
from headrace.sources.mysql.preflight.grants import ReplicationDenied
from headrace.sources.mysql.session.refusals import DatabaseDenied
from headrace.sources.postgres.session.refusals import ReplicationRefused
from headrace.sources.postgres.stream.synchronous import Synchronous
from headrace.sources.shared.refusals import EncryptionRefused, LoginWithheld, PrivilegeMissing, Unreachable
from headrace.spool import layout


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
    for code, kind in (
        ("PG_UNREACHABLE", Unreachable),
        ("MY_UNREACHABLE", Unreachable),
        ("PG_SYNCHRONOUS", Synchronous),
    ):
        doubtful = kind(code, "no connection", hint="check host and port")
        assert policy.retries(doubtful)
        assert not policy.retries(doubtful, has_answered=False)
        assert not policy.retries(from_record(HeadraceError, to_record(doubtful)), has_answered=False), (
            "as the receiver says it"
        )
    assert policy.retries(Transient("PG_CONNECTION_LOST", "lost", hint="wait"), has_answered=False)


@pytest.mark.parametrize(
    "kind",
    [
        PrivilegeMissing,
        LoginWithheld,
        EncryptionRefused,
        DatabaseDenied,
        LockDenied,
        ReplicationDenied,
        ReplicationRefused,
    ],
)
def test_a_right_that_the_run_had_is_waited_for(kind: type[HeadraceError]) -> None:
    for code in kind.codes:
        withheld = from_record(HeadraceError, to_record(kind(code, "denied", hint="GRANT it")))
        assert policy.retries(withheld, was_admitted=True)
        assert not policy.retries(withheld), "a person has just started the run"
        assert policy.exit_code(withheld) == 2


def test_a_service_waits_longer_and_longer_but_for_ever() -> None:
    pauses = list(islice(Patience().pauses(), 30))
    assert pauses == sorted(pauses)
    assert pauses[0] < 1 < pauses[-1] <= policy.LONGEST_PAUSE


def test_once_gives_up_after_some_attempts() -> None:
    assert len(list(Patience(attempts=5).pauses())) == 5


@pytest.mark.parametrize(
    ("error", "spoilt"),
    [
        (layout.damaged_error("segment", 7), True),
        (layout.discarded_error("segment 7"), True),
        (Transient("SPOOL_BUSY", "something", hint="wait"), False),
    ],
)
def test_a_spool_of_which_a_part_is_wrong_or_gone_is_forgotten(error: HeadraceError, spoilt: bool) -> None:
    assert policy.spoils_the_spool(error) is spoilt
    assert policy.spoils_the_spool(from_record(HeadraceError, to_record(error))) is spoilt, (
        "as the receiver says it"
    )


def test_a_source_that_became_anothers_is_disowned() -> None:
    assert policy.disowns(fenced_error("main", "epoch 7"))
    assert not policy.disowns(Misconfigured("LAKE_URL", "something", hint="do something"))
