"""`headrace` in terminals of all kinds: live pages, narrow ones, without colours, without UTF-8."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from headrace.cli import drop, maintain, tables, verify
from headrace.cli.output import say
from headrace.lake.format.status import TableStatus
from tests.terminals import plain, terminal
from tests.unit.web.lakes import a_lake
from tests.unit.web.scenes import healthy, scene

HEADRACE = [sys.executable, "-m", "headrace"]
EVIL = "public.\x1b]0;mine\x07\x1b[31m\u202ered"


def test_a_page_follows_the_size_of_its_terminal_and_stays_when_it_ends(tmp_path: Path) -> None:
    lake = scene(tmp_path, "stopped-table")
    command = f"headrace tables resync --lake {lake} public.invoices"
    with terminal(100, 30) as screen:
        process = screen.start([*HEADRACE, "status", "--lake", lake, "--watch"])
        screen.until(lambda: "Ctrl-C ends" in screen.page, "the page")
        assert screen.raw.startswith("\x1b[?1049h")  # a screen of its own
        first, *_ = screen.page.splitlines()
        assert first.startswith("✕ table public.invoices: stopped")
        screen.resize(50, 20)
        screen.until(lambda: _is_narrow(screen.page, 50), "the narrow page")
        screen.type("\x03")
        assert process.wait(30) == 130
        ended = screen.raw.rpartition("\x1b[?1049l")[2]
    typed = re.sub(r" \\\n +", " ", plain(ended)).replace("\\\n", "")  # as a shell joins its lines
    assert command in typed
    assert "Traceback" not in ended


def _is_narrow(page: str, columns: int) -> bool:
    return "Ctrl-C ends" in page and max(map(len, page.splitlines())) <= columns


def test_no_name_makes_a_terminal_do_anything(tmp_path: Path) -> None:
    said = replace(healthy(), tables={EVIL: TableStatus("live"), "public.表格": TableStatus("live")})
    lake = a_lake(tmp_path, said)
    with terminal(100, 30) as screen:
        assert screen.start([*HEADRACE, "status", "--lake", lake], {"NO_COLOR": "1"}).wait(30) == 0
        screen.until(lambda: lake in screen.text, "the last line")
        raw, text = screen.raw, screen.text
    assert "\x1b]0" not in raw
    assert "\x1b[31m" not in raw
    assert "\u202e" not in raw
    assert r"public.\x1b]0;mine\x07\x1b[31m\u202ered  ✓ live" in text
    assert "public.表格" in text


def test_what_a_command_says_of_a_name_is_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    say(f"{EVIL}: dropped\nand more")
    assert capsys.readouterr().out == r"public.\x1b]0;mine\x07\x1b[31m\u202ered: dropped" + "\nand more\n"


@pytest.mark.parametrize("command", [drop, maintain, tables, verify], ids=lambda module: module.__name__)
def test_a_command_prints_only_json_by_itself(command: ModuleType) -> None:
    printed = re.findall(r"\bprint\((.{0,11})", Path(command.__file__ or "").read_text())
    assert {text for text in printed if text != "json.dumps("} == set()


def test_a_terminal_without_utf_8_or_a_moving_cursor_gets_plain_letters(tmp_path: Path) -> None:
    lake = a_lake(tmp_path, replace(healthy(), tables={"public.größe": TableStatus("live")}))
    for environment in ({"LANG": "C"}, {"LANG": "C", "TERM": "dumb"}):
        with terminal(20, 10) as screen:
            assert screen.start([*HEADRACE, "status", "--lake", lake], environment).wait(30) == 0
            screen.until(lambda: "live" in screen.text, "the table")
            if "TERM" in environment:
                assert "\x1b" not in screen.raw
            else:
                assert screen.raw.isascii()
                assert max(map(len, screen.text.splitlines())) <= 20


def test_a_terminal_that_goes_away_ends_the_page(tmp_path: Path) -> None:
    lake = scene(tmp_path, "healthy")
    screen = terminal(80, 24)
    with screen as shown:
        process = shown.start([*HEADRACE, "status", "--lake", lake, "--watch"])
        shown.until(lambda: "Ctrl-C ends" in shown.page, "the page")
    assert process.wait(30) < 0  # by SIGHUP


def test_a_page_under_nohup_ends_with_its_terminal_too(tmp_path: Path) -> None:
    lake = scene(tmp_path, "healthy")
    with terminal(80, 24) as shown:
        process = shown.start(["env", "--ignore-signal=HUP", *HEADRACE, "status", "--lake", lake, "--watch"])
        shown.until(lambda: "Ctrl-C ends" in shown.page, "the page")
    assert process.wait(30) != 0  # what it says last has nowhere to go
