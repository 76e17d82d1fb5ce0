"""Another server is found out; the same one after an upgrade is the same."""

from __future__ import annotations

import pytest

from headrace.core.errors import HeadraceError
from headrace.sources.postgres.session.identity import PostgresIdentity, verify

HERE = PostgresIdentity("71", 1, 180004, "shop")


@pytest.mark.parametrize(
    ("found", "code"),
    [
        (PostgresIdentity("72", 1, 180004, "shop"), "PG_ANOTHER_SERVER"),
        (PostgresIdentity("71", 2, 180004, "shop"), "PG_PROMOTED"),
        (PostgresIdentity("71", 1, 180004, "other"), "PG_ANOTHER_DATABASE"),
        (PostgresIdentity("71", 1, 180004, "shop", standby=True), "PG_ANOTHER_STANDBY"),
    ],
)
def test_another_server_is_refused(found: PostgresIdentity, code: str) -> None:
    with pytest.raises(HeadraceError) as caught:
        verify(found, HERE)
    assert caught.value.code == code


def test_the_same_server_after_an_upgrade_of_its_minor_version_is_the_same() -> None:
    verify(PostgresIdentity("71", 1, 180005, "shop"), HERE)
