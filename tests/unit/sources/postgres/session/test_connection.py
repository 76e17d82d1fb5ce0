"""Printed values depend on no default of the server's."""

from __future__ import annotations

from headrace.sources.postgres.session.connection import PINS


def test_every_setting_that_changes_how_values_print_is_pinned() -> None:
    printing = {"datestyle", "intervalstyle", "timezone", "extra_float_digits", "bytea_output"}
    printing |= {"lc_monetary", "xmlbinary", "client_encoding", "search_path"}
    assert printing <= PINS.keys()
