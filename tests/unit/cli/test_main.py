"""The command line reports errors of our families in full, with the exit code of the family."""

from __future__ import annotations

import argparse
import json
from types import ModuleType
from typing import Any

import pytest

import headrace
from headrace.cli import main as cli
from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient


def _command_that_raises(error: BaseException) -> ModuleType:
    def run(_args: argparse.Namespace) -> int:
        raise error

    def register(subparsers: Any) -> None:
        command = subparsers.add_parser("fail")
        command.add_argument("--lake")
        command.set_defaults(run=run)

    module = ModuleType("fail")
    vars(module)["register"] = register
    return module


@pytest.mark.parametrize(
    ("family", "code"), [(Misconfigured, 2), (Definite, 3), (Transient, 4)], ids=["2", "3", "4"]
)
def test_each_family_has_its_exit_code_and_shows_every_field(
    family: type[HeadraceError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = family("SOME_CODE", "it is so", detail="because", hint="type this")
    monkeypatch.setattr(cli, "COMMANDS", (_command_that_raises(error),))
    assert cli.main(["fail"]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == "error: SOME_CODE: it is so\ndetail: because\nhint: type this\n"


def test_a_command_of_a_hint_has_the_lake_that_was_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = Transient("SOME_CODE", "it is so", hint="headrace status --lake DIR says more")
    monkeypatch.setattr(cli, "COMMANDS", (_command_that_raises(error),))
    assert cli.main(["fail", "--lake", "./my lake"]) == 4
    assert "hint: headrace status --lake './my lake' says more\n" in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", (_command_that_raises(ZeroDivisionError()),))
    with pytest.raises(ZeroDivisionError):
        cli.main(["fail"])


def test_an_interrupt_ends_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "COMMANDS", (_command_that_raises(KeyboardInterrupt()),))
    assert cli.main(["fail"]) == 130


def test_a_missing_or_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in ([], ["nonsense"]):
        with pytest.raises(SystemExit) as ended:
            cli.main(argv)
        assert ended.value.code == 2
    assert "nonsense" in capsys.readouterr().err


def test_version_is_printed_without_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"headrace {headrace.__version__}\n"


def test_the_version_command_names_what_decides_what_works(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["version", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["headrace"] == headrace.__version__
    assert found["deltalake"]
    assert cli.main(["version"]) == 0
    assert capsys.readouterr().out.startswith("headrace ")
