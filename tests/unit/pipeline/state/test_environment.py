"""The configuration from the environment: a variable for each key, `${NAME}` in values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.cli.main import parser
from headrace.cli.run import parse_config
from headrace.core.errors import Misconfigured
from headrace.pipeline.state import config, environment

FILE = """
[lake]
path = "./lake"

[source.main]
url = "postgresql://app:${SHOP_PASSWORD}@db.example/shop"
tables = ["public.*", "$${literal}.${SCHEMA}"]

[source.other-shop]
url = "mysql://app@db.example/"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "headrace.toml"
    path.write_text(FILE)
    monkeypatch.setenv("SHOP_PASSWORD", "canary@$${1}")
    monkeypatch.setenv("SCHEMA", "sales")
    return path


def test_values_may_name_variables(file: Path) -> None:
    main = config.read(file).sources["main"]
    assert main.url == "postgresql://app:canary@$${1}@db.example/shop"
    assert main.tables == ("public.*", "${literal}.sales")


@pytest.mark.parametrize(
    ("variable", "value", "found"),
    [
        ("HEADRACE_LAKE__PATH", "s3://bucket/lake", lambda c: c.lake.path),
        ("HEADRACE_SOURCE__MAIN__URL", "postgresql://h/${d}", lambda c: c.sources["main"].url),
        ("HEADRACE_SOURCE__MAIN__PUBLICATION", "shop", lambda c: c.sources["main"].options["publication"]),
        ("HEADRACE_SOURCE__OTHER_SHOP__EVERY", "5s", lambda c: c.sources["other-shop"].every),
        ("HEADRACE_SPARK__MASTER", "local[2]", lambda c: c.spark.master),
        ("HEADRACE_WEB__TOKEN", "canary", lambda c: c.web.token),
        ("HEADRACE_ALERTS__WEBHOOK", "https://hook.test/x", lambda c: c.alerts["default"].webhook),
        ("HEADRACE_ALERTS__ON_CALL__WEBHOOK", "https://hook.test/x", lambda c: c.alerts["on_call"].webhook),
    ],
)
def test_a_variable_gives_a_key_that_is_a_text(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, found: Any
) -> None:
    monkeypatch.setenv(variable, value)
    assert found(config.read(file)) == value


def test_a_variable_gives_other_values_as_toml_has_them(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__TABLES", '["a.*", "b.*"]')
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__STRICT", "true")
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__TICK", "0.2")
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__URL", "queue+postgresql://h/d")
    monkeypatch.setenv("HEADRACE_SPARK__CONF", '{ "spark.ui.enabled" = "false" }')
    parsed = config.read(file)
    main = parsed.sources["main"]
    assert (main.tables, main.strict, main.options["tick"]) == (("a.*", "b.*"), True, "0.2")
    assert parsed.spark.conf == {"spark.ui.enabled": "false"}


@pytest.mark.parametrize(
    ("variable", "value", "code", "detail"),
    [
        ("HEADRACE_SOURCE__MAIN__URI", "canary", "CONFIG_UNKNOWN_VARIABLE", "HEADRACE_SOURCE__MAIN__URL"),
        ("HEADRACE_SORCE__MAIN__URL", "canary", "CONFIG_UNKNOWN_VARIABLE", "HEADRACE_SOURCE__MAIN__URL"),
        ("HEADRACE_SOURCE__URL", "canary", "CONFIG_UNKNOWN_VARIABLE", "HEADRACE_SOURCE__MAIN__URL"),
        ("HEADRACE_LAKE_PATH", "canary", "CONFIG_UNKNOWN_VARIABLE", "HEADRACE_LAKE__PATH"),
        ("HEADRACE_WEB__LISTEN__X", "canary", "CONFIG_UNKNOWN_VARIABLE", "HEADRACE_WEB__LISTEN"),
        ("HEADRACE_SOURCE__MAIN__STRICT", "canary", "CONFIG_VARIABLE_MALFORMED", None),
        ("HEADRACE_SOURCE__MAIN__TABLES", "canary.*", "CONFIG_VARIABLE_MALFORMED", None),
        ("HEADRACE_SOURCE__MAIN__EVERY", "soon", "DURATION_MALFORMED", None),
        ("HEADRACE_SOURCE__MIAN__EVERY", "5s", "CONFIG_INCOMPLETE", None),
    ],
)
def test_a_variable_that_means_nothing_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, variable: str, value: str, code: str, detail: str | None
) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(Misconfigured) as refused:
        config.read(file)
    assert refused.value.code == code
    assert detail is None or detail in (refused.value.detail or "")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("name", ["HEADRACE_WEB_TOKEN", "HEADRACE_WEB_PORT", "HEADRACE_SERVICE_HOST"])
def test_other_variables_are_none_of_ours(file: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "9464")
    assert config.read(file).web.token is None


@pytest.mark.parametrize(
    ("value", "detail"),
    [("a${SHOP_PASWORD}", "SHOP_PASSWORD"), ("canary${1}", None), ("canary${", None), ("canary${x y", None)],
)
def test_a_reference_to_nothing_is_refused(
    file: Path, monkeypatch: pytest.MonkeyPatch, value: str, detail: str | None
) -> None:
    file.write_text(FILE.replace("${SCHEMA}", value))
    with pytest.raises(Misconfigured) as refused:
        config.read(file)
    assert refused.value.code == "CONFIG_VARIABLE_UNSET"
    assert detail is None or detail in (refused.value.detail or "")
    assert "canary" not in str(refused.value)


def test_two_sections_of_one_variable_are_refused() -> None:
    raw: dict[str, Any] = {"source": {"a-b": {}, "a_b": {}}}
    with pytest.raises(Misconfigured) as refused:
        environment.overlay(raw, {"HEADRACE_SOURCE__A_B__URL": "x"}, {"source": {"url": "str"}})
    assert refused.value.code == "CONFIG_UNKNOWN_VARIABLE"


def test_variables_alone_configure_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LAKE__PATH", "/lake")
    monkeypatch.setenv("HEADRACE_SOURCE__SHOP__URL", "postgresql://h/d")
    parsed = parse_config(parser().parse_args(["run"]))
    assert (parsed.lake.path, parsed.sources["shop"].url) == ("/lake", "postgresql://h/d")


def test_a_command_line_wins_over_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_LAKE__PATH", "/lake")
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__URL", "postgresql://h/d")
    monkeypatch.setenv("HEADRACE_SOURCE__MAIN__PASSWORD_FILE", "/run/secrets/shop")
    parsed = parse_config(parser().parse_args(["run", "postgresql://here/${d}", "--lake", "/mine"]))
    main = parsed.sources["main"]
    assert (parsed.lake.path, main.url, main.password_file) == (
        "/mine",
        "postgresql://here/${d}",
        "/run/secrets/shop",
    )
