"""The lines of a run: one an event, each with its time and source, none twice, none that moves a cursor."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace

import pytest

from headrace.cli.progress import ProgressView
from headrace.lake.format.status import (
    CopyStatus,
    EpochStatus,
    PositionStatus,
    SourceStatus,
    TableStatus,
    WorkStatus,
    moment_text,
)

LIVE = TableStatus("live", since="0/1")
RUNNING = SourceStatus(
    "main",
    "running",
    position=PositionStatus("0/10"),
    epochs=EpochStatus(newest=1),
    tables={"public.a": LIVE},
)
ERROR = {"code": "PG_LOST", "primary": "the server is gone", "detail": None, "hint": "wait"}
_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ (.*)")


Captured = pytest.CaptureFixture[str]


def lines(log: Captured) -> list[str]:
    """The lines of standard error, a file here, without their times; every one has its own."""
    said = log.readouterr().err
    assert "\x1b" not in said
    found = [_LINE.fullmatch(line) for line in said.splitlines()]
    assert all(found), said
    return [each[1] for each in found if each]


def test_a_log_has_a_line_an_event_and_no_escape_code(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in CI, where a log is no terminal all the same
    with ProgressView() as view:
        view.begin("/my lake", None)
        view.tell(replace(RUNNING, state="starting", position=None, tables=None))
        for turn in range(50):
            view.tell(replace(RUNNING, position=PositionStatus(f"0/{turn + 10}", lag_bytes=turn)))
        view.tell(replace(RUNNING, tables={"public.a": LIVE, "public.\x1b[31mb\nc": LIVE}))
    assert lines(capsys) == [
        "no page is served; headrace serve --lake '/my lake' shows one",
        "main starting",
        "main running: 1 live, mark at 0/10, 0 bytes behind",
        r"main: in the marks, exact: public.\x1b[31mb\nc",
    ]


def test_what_differs_in_numbers_alone_is_said_once_and_a_turn_every_time(capsys: Captured) -> None:
    with ProgressView() as view:
        view.begin("/lake", "http://127.0.0.1:9464/")
        view.tell(RUNNING)
        for held in range(5):
            view.tell(replace(RUNNING, warnings={"PG_MAX_WAL": f"{held},000 bytes are held back"}))
        view.tell(RUNNING)
        for _ in range(3):
            view.tell(replace(RUNNING, state="waiting", error=ERROR))
            view.tell(RUNNING)
    told = lines(capsys)
    assert told[0] == "the page is at http://127.0.0.1:9464/"
    assert sum("PG_MAX_WAL: " in line for line in told) == 1
    assert told.count("main: over: PG_MAX_WAL") == 1
    assert sum(line.startswith("main waiting: ") and "PG_LOST" in line for line in told) == 3
    assert sum(line.startswith("main running: ") for line in told) == 5


def test_the_error_that_ends_a_run_is_left_to_the_end_of_the_command(capsys: Captured) -> None:
    with ProgressView() as view:
        view.tell(replace(RUNNING, state="waiting", error=ERROR))
        view.tell(replace(RUNNING, state="failed", error=ERROR))
        said = lines(capsys)
        view.tell(replace(RUNNING, source="other"))
        view.tell(replace(RUNNING, source="other", state="failed", error=ERROR))
    assert said[0].endswith("PG_LOST: the server is gone")
    assert said[1].endswith("bytes behind, PG_LOST")
    # Of several sources the others go on: nothing else may say it for days.
    assert lines(capsys)[-1].endswith("PG_LOST: the server is gone")


def test_a_table_that_is_locked_for_long_is_an_event_and_so_is_its_return(capsys: Captured) -> None:
    long_ago = moment_text(0)
    with ProgressView() as view:
        view.tell(RUNNING)
        for _ in range(3):
            held = replace(LIVE, unseen_since=long_ago, holder="process 77")
            view.tell(replace(RUNNING, tables={"public.a": held}))
        view.tell(RUNNING)
    assert [line.partition(" is ")[2][:20] for line in lines(capsys)[1:] if "public.a" in line] == [
        "in no mark since 197",
        "back in the marks, e",
    ]


def test_a_long_copy_is_told_of_once_a_minute_in_a_log(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter(range(0, 100_000, 1))
    monkeypatch.setattr("headrace.cli.progress.time.monotonic", lambda: float(next(clock)))
    table = TableStatus("copying", copy=CopyStatus(1000, 0, 1_000_000, 0))
    with ProgressView() as view:
        for turn in range(100):
            copy = CopyStatus(1000, turn, 1_000_000, 1000 * turn)
            view.tell(replace(RUNNING, copy=copy, tables={"public.b": replace(table, copy=copy)}))
    told = [line for line in lines(capsys) if " copied, " in line and "%" in line]
    assert 2 <= len(told) <= 12
    assert re.fullmatch(r"main: \d+% of 1\.0 MB copied, \d+ B/s, .* left", told[-1])


def test_a_step_of_the_loop_that_takes_long_is_an_event(capsys: Captured) -> None:
    busy = replace(RUNNING, turned_at=moment_text(0), work=WorkStatus("commits epoch 7", moment_text(0)))
    with ProgressView() as view:
        view.tell(RUNNING)
        view.tell(busy)
        view.tell(replace(busy, work=WorkStatus("commits epoch 8", moment_text(0))))
    assert [line for line in lines(capsys) if "busy" in line] == [
        "main running: 1 live, mark at 0/10, 0 bytes behind, busy: commits epoch 7"
    ]


def test_json_has_a_record_a_status_and_nothing_else(capsys: Captured) -> None:
    with ProgressView(as_json=True) as view:
        view.begin("/lake", None)
        view.tell(RUNNING)
    heard = capsys.readouterr()
    assert json.loads(heard.out)["state"] == "running"
    assert heard.err == ""


def test_a_terminal_that_is_gone_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(io.StringIO):
        def write(self, _text: str) -> int:
            raise OSError(5, "Input/output error")

        def isatty(self) -> bool:
            return True

    monkeypatch.setattr("sys.stderr", Gone())
    monkeypatch.setenv("TERM", "xterm")
    with ProgressView() as view:
        view.begin("/lake", "http://127.0.0.1:9464/")
        view.tell(RUNNING)
        view.tell(RUNNING)
