"""A table that may not be read just now waits alone, and comes by itself."""

from __future__ import annotations

import pytest

from headrace_testing import validators
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


def test_a_table_whose_privilege_goes_while_it_is_copied_waits_alone_until_it_is_granted_again(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "bad"):
        mirrors.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", user="app")
        mirrors.database.execute(f"INSERT INTO {name} SELECT i FROM generate_series(1, 20) i", user="app")
    verbs = ["REVOKE SELECT ON bad FROM app", "UPDATE bad SET v = 'later'; GRANT SELECT ON bad TO app"]

    def act(point: str, table: str = "") -> None:
        """Revoke before the first copy, grant before the next one."""
        if point == "copy.snapshot.before" and verbs:
            mirrors.database.execute(verbs.pop(0))

    monkeypatch.setattr("headrace.pipeline.copy.snapshot.failpoint", act)
    mirrors.once()
    assert not verbs
    having = [set(mark.versions) for mark in mirrors.lake.marks()]
    assert {"public.good"} in having, "it waits alone"
    assert having[-1] == {"public.good", "public.bad"}
    assert validators.exact(mirrors.lake, mirrors.database.url()) == []
