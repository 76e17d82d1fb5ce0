"""CREATE SOURCE registers a kind, a connection, and the options that the kind asks for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.core.errors import Misconfigured
from headrace.lake.format import layout
from headrace.lake.store.open import open_store
from headrace.pipeline.state import last_config
from headrace.sql.register import carry_out
from headrace.sql.statements import parse
from tests.kinds.declaration import beside

CREATE = "CREATE SOURCE s FROM POSTGRES CONNECTION 'user=me dbname=shop host=db' PUBLICATION 'it''s'"


def test_a_source_is_registered_with_the_options_of_its_kind_and_printed_as_it_was_written(
    tmp_path: Path,
) -> None:
    lake = str(tmp_path / "lake")
    carry_out(lake, parse(CREATE), None, None)
    [key] = open_store(lake).list(layout.REGISTERED_SOURCES)
    assert json.loads(open_store(lake).get(key) or b"") == {
        "kind": "postgres",
        "connection": "user=me dbname=shop host=db",
        "publication": "it's",
        "views": None,
        "materialized": False,
    }
    assert carry_out(lake, parse("SHOW CREATE SOURCE s"), None, None).to_pylist() == [{"statement": CREATE}]
    [row] = carry_out(lake, parse("SHOW SOURCES"), None, None).to_pylist()
    assert (row["kind"], row["publication"], row["mirrored"]) == ("postgres", "it's", False)
    assert last_config.configuration_of(lake).sources["s"].options == {"publication": "it's"}


def test_a_connection_of_another_kind_than_the_statement_says_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch)
    statement = parse("CREATE SOURCE s FROM TIDE CONNECTION 'user=me dbname=shop host=db' BASIN 'b'")
    with pytest.raises(Misconfigured) as caught:
        carry_out(str(tmp_path / "lake"), statement, None, None)
    assert caught.value.code == "SQL_SOURCE_KIND"


def test_the_hint_for_an_unknown_source_spells_the_statement_for_each_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside(monkeypatch)
    carry_out(str(tmp_path / "lake"), parse(CREATE), None, None)
    with pytest.raises(Misconfigured) as caught:
        carry_out(str(tmp_path / "lake"), parse("SHOW CREATE SOURCE other"), None, None)
    assert caught.value.code == "SQL_SOURCE_UNKNOWN"
    forms = [form.replace("name", "n") for form in (caught.value.hint or "").split("; or ")]
    assert [parse(form).kind for form in forms] == ["postgres", "mysql", "mariadb", "queue", "tide"]  # type: ignore[union-attr]
