"""The configuration: parsed once, unknown keys refused, every option documented."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from headrace.core.errors import Misconfigured
from headrace.pipeline.state import config

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
    ],
)
def test_what_is_wrong_is_refused_with_a_hint(raw: dict[str, Any], code: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        config.parse(raw)
    assert refused.value.code == code
    assert refused.value.hint


def test_a_file_that_is_absent_or_no_toml_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="CONFIG_UNREADABLE"):
        config.read(tmp_path / "absent.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text('[source.main]\nurl = "postgresql://u:secret@h/d')
    with pytest.raises(Misconfigured) as refused:
        config.read(broken)
    assert refused.value.code == "CONFIG_MALFORMED"
    assert "secret" not in str(refused.value)


def test_every_option_is_documented() -> None:
    page = Path(__file__).parents[4].joinpath("docs/operate.md").read_text()
    kinds = (config.LakeConfig, config.SourceConfig, config.SparkSettings)
    names = [field.name for kind in kinds for field in dataclasses.fields(kind)]
    assert [name for name in names if f"`{name}`" not in page] == []
