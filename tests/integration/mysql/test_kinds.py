"""MySQL and MariaDB are two kinds of source, of one folder: the address says which one a server has to be."""

from __future__ import annotations

import pytest

from headrace.core.errors import Misconfigured
from headrace.sources import registry
from headrace.sources.contract.findings import Wish
from headrace_testing.mysql import Server

pytestmark = pytest.mark.server


@pytest.mark.parametrize(("kind", "other"), [("mysql", "mariadb"), ("mariadb", "mysql")])
def test_a_server_of_the_other_kind_is_refused_before_anything_is_made(
    request: pytest.FixtureRequest, kind: str, other: str
) -> None:
    server: Server = request.getfixturevalue(f"{kind}_server")
    server.start()
    right = server.url(user="app")
    wrong = right.replace(f"{kind}://", f"{other}://")
    for url, codes in ((right, set()), (wrong, {"MY_ANOTHER_KIND"})):
        source = registry.by_address(url)
        found = source.examine(source.address(url), Wish((f"{kind}.*",), {}, connections=2))
        assert {each.code for each in found.findings} & {"MY_ANOTHER_KIND"} == codes
    with pytest.raises(Misconfigured) as refused:
        registry.by_kind(other).connect(registry.by_kind(other).address(wrong), role="test")
    assert refused.value.code == "MY_ANOTHER_KIND"
    assert f"{kind}://" in refused.value.hint
