"""The configuration: parsed once, unknown keys refused, every option documented."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from headrace.alerts.hooks import KINDS, HookConfig
from headrace.core.errors import Misconfigured
from headrace.iceberg.settings import IcebergConfig, public
from headrace.pipeline.state import config
from headrace.sources import registry
from tests.kinds.declaration import beside

WHOLE: dict[str, Any] = {
    "lake": {"path": "./lake"},
    "source": {"main": {"url": "postgresql://u:secret@h/d", "tables": ["public.*"]}},
    "spark": {"master": "local[2]", "conf": {"spark.ui.enabled": "false"}},
}


def test_what_is_not_said_has_its_default() -> None:
    parsed = config.parse(WHOLE)
    source = parsed.sources["main"]
    assert (source.tables, source.snapshot_connections, source.on_max_wal) == (("public.*",), 4, "warn")
    assert parsed.spark.conf == {"spark.ui.enabled": "false"}


def test_the_url_is_never_shown() -> None:
    assert "secret" not in repr(config.parse(WHOLE))


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        ({"source": {"main": {"url": "x"}}}, "CONFIG_INCOMPLETE"),
        ({"lake": {"path": "x"}}, "CONFIG_INCOMPLETE"),
        ({"lake": {}, "source": {"main": {"url": "x"}}}, "CONFIG_INCOMPLETE"),
        ({**WHOLE, "lakes": {}}, "CONFIG_UNKNOWN_KEY"),
        ({**WHOLE, "lake": {"path": "x", "pth": "y"}}, "CONFIG_UNKNOWN_KEY"),
        ({**WHOLE, "source": {"main": {"url": "x", "strikt": True}}}, "CONFIG_UNKNOWN_KEY"),
        ({**WHOLE, "source": {"main": {"url": "x", "strict": "yes"}}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "source": {"main": {"url": "x", "snapshot_connections": True}}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "source": {"main": {"url": "x", "on_max_wal": "panic"}}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "source": {"main": {"url": "x", "every": "soon"}}}, "DURATION_MALFORMED"),
        ({**WHOLE, "source": {"main": {"url": "x", "handoff": "hope"}}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "source": {"main": {"url": "x", "slot": 7}}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "source": {"main": {"url": "x", "options": {"slot": "s"}}}}, "CONFIG_UNKNOWN_KEY"),
        ({**WHOLE, "source": {"main": {"slot": "s"}}}, "CONFIG_INCOMPLETE"),
        ({**WHOLE, "source": {"main": {"url": "dbase://x"}}}, "SOURCE_UNKNOWN"),
        ({**WHOLE, "alerts": {"webhook": "chat.example/secret"}}, "ALERT_URL"),
        ({**WHOLE, "alerts": {"webhook": "ftp://hook.test/secret"}}, "ALERT_URL"),
        ({**WHOLE, "alerts": {"webhook": "https://hook.test:port/secret"}}, "ALERT_URL"),
        ({**WHOLE, "alerts": {"webhook": "https://hook.test/a secret"}}, "ALERT_URL"),
        ({**WHOLE, "alerts": {"command": ["x"], "events": ["table_stoped"]}}, "ALERT_EVENT"),
        ({**WHOLE, "alerts": {"command": ["x"], "lag": "soon"}}, "DURATION_MALFORMED"),
        ({**WHOLE, "alerts": {"command": ["x"], "max_wal": 80}}, "ALERT_SHARE"),
        ({**WHOLE, "alerts": {"command": ["x"], "max_wal": True}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "alerts": {"command": "x"}}, "CONFIG_BAD_VALUE"),
        ({**WHOLE, "alerts": {"hook": "x"}}, "CONFIG_UNKNOWN_KEY"),
        ({**WHOLE, "alerts": {"on call": {"command": ["x"]}}}, "ALERT_NAME"),
        ({**WHOLE, "alerts": {"on-call": {"command": ["x"]}}}, "ALERT_NAME"),
        ({**WHOLE, "alerts": {"default": {"command": ["x"]}}}, "ALERT_NAME"),
    ],
)
def test_what_is_wrong_is_refused_with_a_hint(raw: dict[str, Any], code: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        config.parse(raw)
    assert refused.value.code == code
    assert refused.value.hint
    assert "secret" not in str(refused.value)


def test_what_alerts_says_of_events_holds_for_its_named_sections() -> None:
    alerts = {"lag": "1m", "a": {"command": ["x"]}, "b": {"webhook": "https://hook.test/secret", "lag": "2m"}}
    parsed = config.parse({**WHOLE, "alerts": alerts}).alerts
    assert {name: section.lag for name, section in parsed.items()} == {"a": "1m", "b": "2m"}
    assert "secret" not in repr(parsed)
    parsed = config.parse({**WHOLE, "alerts": {**alerts, "command": ["y"], "max_wal": 1}}).alerts
    assert [(name, section.max_wal) for name, section in parsed.items()] == [
        ("default", 1),
        ("a", 1),
        ("b", 1),
    ]


@pytest.mark.parametrize(
    ("section", "key", "value", "said"),
    [
        ("source", "every", 5, 'write every = "5s"'),
        ("source", "every", True, 'write every = "5s"'),
        ("source", "tables", "public.*", 'write tables = ["public.*"]'),
        ("source", "strict", "yes", "write strict = true"),
        ("source", "on_ddl", 1, 'write on_ddl = "follow"'),
        ("source", "tabels", [], 'did you mean "tables"?'),
        ("lake", "retention", 30, 'write retention = "30d"'),
        ("lake", "pathh", "x", 'did you mean "path"?'),
    ],
)
def test_a_value_or_a_key_that_is_wrong_is_told_with_what_to_write(
    section: str, key: str, value: object, said: str
) -> None:
    raw: dict[str, Any] = {"lake": {"path": "l"}, "source": {"main": {"url": "postgresql://h/d"}}}
    (raw["lake"] if section == "lake" else raw["source"]["main"])[key] = value
    with pytest.raises(Misconfigured) as refused:
        config.parse(raw)
    assert said in (refused.value.hint, refused.value.detail)


def test_a_file_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="CONFIG_UNREADABLE"):
        config.read(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text('[source.main]\nurl = "postgresql://u:secret@h/d')
    with pytest.raises(Misconfigured) as refused:
        config.read(broken)
    assert refused.value.code == "CONFIG_MALFORMED"
    assert "secret" not in str(refused.value)
    broken.write_text("[lake]\npath = ?")
    with pytest.raises(Misconfigured) as refused:
        config.read(broken)
    assert refused.value.detail == "at line 2, column 8"


def test_the_options_of_a_kind_stand_beside_the_others_and_go_to_it_as_they_were_given() -> None:
    raw = {"url": "postgresql://h/d", "slot": "s", "publication": "p", "every": "5s"}
    source = config.parse_source("main", raw)
    assert (source.options, source.every) == ({"slot": "s", "publication": "p"}, "5s")


def test_an_option_that_is_a_number_may_be_written_as_one() -> None:
    url = "queue+postgresql://h/d"
    given = config.parse_source("main", {"url": url, "tick": 0.2, "idle_tick": "3"})
    assert given.options == {"tick": "0.2", "idle_tick": "3"}
    for wrong in ({"tick": True}, {"tick": [1]}, {"queue": 7}):
        with pytest.raises(Misconfigured, match="CONFIG_BAD_VALUE"):
            config.parse_source("main", {"url": url, **wrong})


def test_an_option_of_another_kind_is_refused_with_those_that_this_one_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    beside(monkeypatch)
    assert config.parse_source("main", {"url": "tide://x", "moon": "full"}).options == {"moon": "full"}
    with pytest.raises(Misconfigured) as refused:
        config.parse_source("main", {"url": "postgresql://h/d", "moon": "full"})
    assert refused.value.code == "CONFIG_UNKNOWN_KEY"
    known = (refused.value.hint or "").removeprefix("known are: ").split(", ")
    assert {"url", "every", "publication", "slot", "handoff"} <= set(known)
    assert not {"moon", "basin", "options"} & set(known)


def test_no_kind_declares_an_option_that_every_source_has() -> None:
    names = {field.name for field in dataclasses.fields(config.SourceConfig)}
    for kind in registry.kinds():
        assert not {option.name for option in registry.declaration(kind).options} & names


def test_every_option_is_documented() -> None:
    page = Path(__file__).parents[4].joinpath("docs/configure.md").read_text()
    kinds = (config.LakeConfig, config.SourceConfig, config.SparkSettings)
    names = [field.name for kind in kinds for field in dataclasses.fields(kind) if field.name != "options"]
    names += [option.name for kind in registry.kinds() for option in registry.declaration(kind).options]
    assert [name for name in names if f"`{name}`" not in page] == []
    page = Path(__file__).parents[4].joinpath("docs/alerts.md").read_text()
    names = [field.name for field in dataclasses.fields(HookConfig)] + list(KINDS)
    assert [name for name in names if f"`{name}`" not in page] == []


def _iceberg(section: dict[str, Any]) -> IcebergConfig | None:
    return config.parse({**WHOLE, "iceberg": section}).iceberg


def test_the_catalog_of_an_export_is_a_name_or_its_properties() -> None:
    assert _iceberg({}) == IcebergConfig()
    assert _iceberg({"catalog": "prod", "every": "5m"}) == IcebergConfig("prod", every="5m")
    properties = {"type": "sql", "uri": "postgresql+psycopg://me:secret@h/c"}
    found = _iceberg({"catalog": properties, "tags": 3})
    assert found == IcebergConfig(properties=properties, tags=3)
    assert "secret" not in repr(found)
    assert public(properties) == {"type": "sql", "uri": "postgresql+psycopg://me@h/c"}


@pytest.mark.parametrize(
    ("section", "code"),
    [
        ({"catalog": {"type": "glue", "uri": "https://catalog.example"}}, "ICEBERG_CATALOG_KIND"),
        ({"catalog": {"type": "sql"}}, "ICEBERG_CATALOG_URI"),
        ({"properties": {}}, "CONFIG_UNKNOWN_KEY"),
        ({"tags": 0}, "ICEBERG_TAGS"),
        ({"every": "often"}, "DURATION_MALFORMED"),
    ],
)
def test_an_export_that_cannot_be_is_refused(section: dict[str, Any], code: str) -> None:
    with pytest.raises(Misconfigured, match=code):
        _iceberg(section)
