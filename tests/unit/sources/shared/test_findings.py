"""Columns that differ only in case get new names, which no other column has."""

from __future__ import annotations

import pytest

from headrace.sources.shared.findings import new_names


@pytest.mark.parametrize(
    ("names", "proposed"),
    [
        (["id", "n"], {}),
        (["id", "Id", "ID"], {"Id": "Id_2", "ID": "ID_3"}),
        (["n", "N", "n_2"], {"N": "N_3"}),
        (["straße", "STRASSE"], {"STRASSE": "STRASSE_2"}),
    ],
    ids=["apart", "thrice", "taken", "folded"],
)
def test_names_that_differ_only_in_case_get_new_ones(names: list[str], proposed: dict[str, str]) -> None:
    assert new_names(names) == proposed
