"""An error, and what is added to it on its way."""

from __future__ import annotations

import pytest

from headrace.core.errors import Definite, Misconfigured, from_record


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
    assert added.as_record() == error.as_record() | {"detail": after}


def test_an_error_survives_its_record() -> None:
    error = Misconfigured("PG_SLOT_UNFIT", "it can't be used", detail=None, hint="name another")
    assert from_record(error.as_record()).as_record() == error.as_record()
