"""A table that cannot be read stops alone, and comes back by what its hint says."""

from __future__ import annotations

import pytest

from headrace.core.errors import HeadraceError
from headrace.pipeline.commands import ask
from headrace.testing import validators
from tests.integration.pipeline.conftest import Mirrors

pytestmark = pytest.mark.server


def test_a_table_whose_privilege_goes_while_it_is_copied_stops_alone_until_it_is_granted_again(
    mirrors: Mirrors, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("good", "bad"):
        mirrors.database.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", user="app")
        mirrors.database.execute(f"INSERT INTO {name} SELECT i FROM generate_series(1, 20) i", user="app")

    def revoke(point: str, table: str = "") -> None:
        if point == "copy.snapshot.before":
            mirrors.database.execute("REVOKE ALL ON bad FROM app")

    with monkeypatch.context() as patch:
        patch.setattr("headrace.pipeline.copy.snapshot.failpoint", revoke)
        with pytest.raises(HeadraceError) as caught:
            mirrors.once()
    assert caught.value.code == "PG_TABLE_UNREADABLE"
    assert set(mirrors.lake.marks()[-1].versions) == {"public.good"}
    grant, _, resync = caught.value.hint.partition("; then ")
    assert resync == "headrace tables resync public.bad"
    mirrors.database.execute(grant.partition(", or ")[0])
    mirrors.database.execute("UPDATE bad SET v = 'later'; INSERT INTO good VALUES (0)")
    url = mirrors.database.url(user="app")
    ask.ask(str(mirrors.path), "resync", {"tables": ["public.bad"]}, url=url)
    assert set(mirrors.once().marks()[-1].versions) == {"public.good", "public.bad"}
    assert validators.exact(mirrors.lake, mirrors.database.url()) == []
