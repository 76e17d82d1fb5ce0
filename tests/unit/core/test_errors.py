"""An error, and what is added to it on its way."""

from __future__ import annotations

import pickle

import pytest

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient
from headrace.core.records import from_record, to_record


@pytest.mark.parametrize(
    ("detail", "after"),
    [
        (None, 'at "0/15"'),
        ("two rows", 'two rows; at "0/15"'),
        ('it is at "0/15" now', 'it is at "0/15" now'),
    ],
)
def test_what_is_added_to_an_error_is_said_once(detail: str | None, after: str) -> None:
    error = Definite("ROW_MISSING", "rows are missing", detail=detail, hint="copy it anew")
    added = error.adding('at "0/15"')
    assert type(added) is Definite
    assert to_record(added) == to_record(error) | {"detail": after}


def test_an_error_survives_its_record() -> None:
    error = Misconfigured("PG_SLOT_UNFIT", "it can't be used", detail=None, hint="name another")
    assert to_record(from_record(HeadraceError, to_record(error))) == to_record(error)


class Weather(Transient):
    """A condition."""

    codes = ("TEST_RAIN", "TEST_HAIL")


@pytest.mark.parametrize("code", Weather.codes)
def test_a_condition_is_itself_again_after_its_record_and_after_a_pickle(code: str) -> None:
    error = Weather(code, "it falls", hint="wait").adding("on the plain")
    assert type(from_record(HeadraceError, to_record(error))) is Weather
    assert type(pickle.loads(pickle.dumps(error))) is Weather
    assert to_record(from_record(HeadraceError, to_record(error))) == to_record(error)


def test_a_record_of_another_family_is_no_condition() -> None:
    """An older version wrote such a record."""
    record = to_record(Definite("TEST_RAIN", "it fell", hint="dry it"))
    assert type(from_record(HeadraceError, record)) is Definite
