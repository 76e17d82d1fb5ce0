"""Sources are found by their kind and by the scheme of an address."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from headrace.core.errors import Misconfigured
from headrace.core.records import to_record
from headrace.sources import registry
from headrace.sources.contract.source import Source


def test_a_source_is_found_by_its_kind_and_by_its_addresses() -> None:
    source = registry.by_kind("postgres")
    for scheme in registry.declaration("postgres").schemes:
        assert registry.by_address(f"{scheme}://me:secret@db/shop") is source
    assert registry.by_address("host=db dbname=shop password=x://y") is source


@pytest.mark.parametrize(
    ("find", "asked", "shown"),
    [
        (registry.by_kind, "dbase", 'of the kind "dbase"'),
        (registry.by_address, "db2://me:secret@db/shop", '"db2://"'),
    ],
)
def test_an_unknown_source_is_refused_without_its_password(
    find: Callable[[str], Source], asked: str, shown: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        find(asked)
    assert caught.value.code == "SOURCE_UNKNOWN"
    assert shown in str(caught.value)
    assert "secret" not in str(to_record(caught.value))


def test_an_option_of_several_kinds_means_the_same() -> None:
    """Each has one flag on the command line, under the heading of its kinds; its values may be their own."""
    declared = [registry.declaration(kind) for kind in registry.kinds()]
    options = {(option.name, option.help, option.in_sql) for each in declared for option in each.options}
    assert len(options) == len({name for name, _, _ in options})


def test_a_source_that_nobody_asked_for_is_not_loaded() -> None:
    asked = "import sys, headrace.sources.registry; print([m for m in sys.modules if 'postgres' in m])"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
