"""Delivery: what hooks do to an event, each way of failing with a code of its own and without the address."""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
import time
from pathlib import Path

import pytest

from headrace.alerts import delivery
from headrace.alerts.delivery import deliver
from headrace.alerts.hooks import Hook, HookConfig, hooks_of
from headrace.core.errors import HeadraceError
from headrace.core.records import to_record
from headrace_testing.postmaster import wait_for
from tests.hooks import CANARY, hook_server

LOGIN = "//me:p%40ss@hook.test/"
EVENT = {"kind": "test", "text": "naïve ✓", "table": None}


def _hook(**section: object) -> Hook:
    [hook] = hooks_of({"oncall": HookConfig(**section)}, {})  # type: ignore[arg-type]
    return hook


def _error(**section: object) -> HeadraceError:
    with pytest.raises(HeadraceError) as raised:
        deliver(_hook(**section), EVENT)
    error = raised.value
    assert CANARY not in f"{error}{error!r}{to_record(error)}"
    assert raised.value.__cause__ is None
    return error


@pytest.fixture(autouse=True)
def _brief(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "WEBHOOK_SECONDS", 0.5)
    monkeypatch.setattr(delivery, "COMMAND_SECONDS", 0.5)


def test_a_webhook_gets_the_event_as_json() -> None:
    with hook_server() as hook:
        assert deliver(_hook(webhook=hook.url), EVENT) == "200 OK"
        assert hook.events == [EVENT]


@pytest.mark.parametrize(
    ("answers", "code"),
    [
        (500, "ALERT_HOOK_REFUSED"),
        (404, "ALERT_HOOK_REFUSED"),
        ("redirect", "ALERT_HOOK_REDIRECTED"),
        ("hang", "ALERT_HOOK_SILENT"),
        ("drip", "ALERT_HOOK_SILENT"),
        ("noise", "ALERT_HOOK_UNREACHABLE"),
    ],
)
def test_what_a_webhook_answers_has_a_code(answers: int | str, code: str) -> None:
    with hook_server() as hook:
        hook.answers, begun = answers, time.monotonic()
        assert _error(webhook=hook.url).code == code
        assert time.monotonic() - begun < 5
        assert hook.asked == 1  # a redirect is not followed


def test_what_cannot_be_reached_has_a_code_and_says_why() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    refused = _error(webhook=f"http://127.0.0.1:{port}/{CANARY}")
    assert (refused.code, refused.detail) == ("ALERT_HOOK_UNREACHABLE", "Connection refused")
    with hook_server() as hook:
        assert _error(webhook=hook.url.replace("http:", "https:")).code == "ALERT_HOOK_UNREACHABLE"
    nowhere = _error(webhook=f"http://{CANARY}.invalid/")
    assert (nowhere.code, nowhere.detail) == ("ALERT_HOOK_UNREACHABLE", "its host name leads nowhere")


def test_a_name_that_is_no_host_has_a_code() -> None:
    error = _error(webhook=f"http://{CANARY}..invalid/")
    assert (error.code, error.detail) == ("ALERT_HOOK_UNREACHABLE", "its host name leads nowhere")


def test_a_certificate_of_another_host_does_not_tell_ours() -> None:
    error = ssl.SSLCertVerificationError(1, "certificate verify failed")
    error.verify_message = f"Hostname mismatch, certificate is not valid for '{CANARY}.test'."
    assert delivery._reason(error) == "its certificate is not trusted: Hostname mismatch"


def test_a_path_that_is_no_text_is_delivered() -> None:
    with hook_server() as hook:
        assert deliver(_hook(webhook=hook.url), {**EVENT, "lake": "/caf\udce9"}) == "200 OK"
        assert hook.events == [{**EVENT, "lake": "/caf\udce9"}]


def test_a_file_is_read_for_each_attempt(tmp_path: Path) -> None:
    file = tmp_path / "hook"
    hook = _hook(webhook_file=str(file))
    assert _error(webhook_file=str(file)).code == "ALERT_FILE"
    file.write_text(f"nonsense {CANARY}")
    assert _error(webhook_file=str(file)).code == "ALERT_URL"
    file.write_bytes(b"\xff\xfe")
    assert _error(webhook_file=str(file)).code == "ALERT_FILE"
    with hook_server() as server:
        file.write_text(f"{server.url}\n")
        assert deliver(hook, EVENT) == "200 OK"


def test_the_environment_comes_before_the_file() -> None:
    with hook_server() as server:
        section = {"oncall_2": HookConfig(webhook_file="/nowhere", webhook="http://nowhere.invalid/")}
        [hook] = hooks_of(section, {"HEADRACE_ALERTS_ONCALL_2_WEBHOOK": server.url})
        assert deliver(hook, EVENT) == "200 OK"
        [hook] = hooks_of({}, {"HEADRACE_ALERTS_WEBHOOK": server.url})
        assert hook.label == "default (webhook)"
        assert CANARY not in repr(hook)


def test_a_login_in_the_address_is_sent_as_one() -> None:
    assert delivery._headers(_hook(webhook=f"https:{LOGIN}").address())["Authorization"] == (
        "Basic bWU6cEBzcw=="
    )


def test_a_command_gets_the_event_on_its_standard_input(tmp_path: Path) -> None:
    out = tmp_path / "event"
    script = "import sys; open(sys.argv[1], 'wb').write(sys.stdin.buffer.read()); print('secret')"
    assert deliver(_hook(command=(sys.executable, "-c", script, str(out))), EVENT) == "exit code 0"
    assert json.loads(out.read_bytes()) == EVENT


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("/nowhere/at-all",), "ALERT_COMMAND_MISSING"),
        (("a\0b",), "ALERT_COMMAND_MISSING"),
        (("false",), "ALERT_COMMAND_FAILED"),
        (("sh", "-c", "kill -9 $$"), "ALERT_COMMAND_FAILED"),
        (("sleep", "60"), "ALERT_COMMAND_SILENT"),
    ],
)
def test_what_a_command_does_has_a_code(command: tuple[str, ...], code: str) -> None:
    assert _error(command=command).code == code


def test_what_a_command_started_ends_with_it(tmp_path: Path) -> None:
    child = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {child}; wait"
    assert _error(command=("sh", "-c", script)).code == "ALERT_COMMAND_SILENT"
    pid = int(child.read_text())
    wait_for(lambda: not _runs(pid), "the end of the child")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
