"""The bounds of a snapshot decide about a transaction that it does not list."""

from __future__ import annotations

import pytest

from headrace.sources.postgres.copy.visibility import unseen_xids


@pytest.mark.parametrize(
    ("visible", "hidden"),
    [("10:10:", {10, 11, 15, 20}), ("10:20:11,15", {11, 15, 20}), ("30:30:", set())],
)
def test_a_transaction_at_or_above_xmax_is_unseen_though_not_listed(visible: str, hidden: set[int]) -> None:
    assert unseen_xids(visible, {9, 10, 11, 15, 20}) == hidden
