"""`headrace alerts test`: one event to each hook, and what came back, with a code where nothing good did."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli import main as cli
from tests.hooks import CANARY, hook_server

CONFIG = """
[lake]
path = "./lake"
[source.shop]
url = "postgresql://h/shop"
[alerts]
webhook = "{url}"
[alerts.oncall]
command = ["false"]
"""


def _tried(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(["alerts", "test", *arguments])
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err
    return code, said.out + said.err


def test_each_hook_is_tried_and_says_what_came_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "headrace.toml"
    with hook_server() as hook:
        file.write_text(CONFIG.format(url=hook.url))
        code, said = _tried(capsys, "--config", str(file))
        assert code == 4
        lines = said.splitlines()
        assert lines[:2] == [
            "default (webhook): 200 OK",
            'oncall (command): ALERT_COMMAND_FAILED: the command of "oncall" failed',
        ]
        [event] = hook.events
        assert (event["kind"], event["source"], event["lake"]) == ("test", "shop", "./lake")
        assert _tried(capsys, "--config", str(file), "--name", "default") == (
            0,
            "default (webhook): 200 OK\n",
        )
        hook.answers = 500
        code, said = _tried(capsys, "--config", str(file), "--name", "default")
        assert (code, "it answered 500 Internal Server Error" in said) == (4, True)


def test_a_name_that_is_not_there_and_no_hook_at_all_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "headrace.toml"
    file.write_text(CONFIG.format(url=f"http://{CANARY}.invalid/"))
    code, said = _tried(capsys, "--config", str(file), "--name", "onkall")
    assert (code, said.startswith("error: ALERT_NONE"), "default, oncall" in said) == (2, True, True)
    assert _tried(capsys)[1].startswith("error: ALERT_NONE")
    file.write_text(CONFIG.partition("[alerts]")[0] + "[alerts]\n[alerts.oncall]\nlag = '1m'\n")
    assert _tried(capsys, "--config", str(file))[1].startswith("error: ALERT_INCOMPLETE")
    monkeypatch.setenv("HEADRACE_ALERTS_WEBHOOK", f"nonsense {CANARY}")
    code, said = _tried(capsys)
    assert (code, "ALERT_URL" in said) == (2, True)
