"""The demo on MySQL and MariaDB: a snapshot under load, a crash, and every mark whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main as cli

pytestmark = [pytest.mark.server, pytest.mark.spark, pytest.mark.full]


@pytest.mark.parametrize("kind", ["mysql", "mariadb"])
def test_the_demo_proves_its_mirror_on_every_kind(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = cli.main(["demo", "--source", kind, "--scale", "1", "--lake", str(tmp_path / "lake")])
    assert (done, "at the end every table equals its source" in capsys.readouterr().out) == (0, True)
