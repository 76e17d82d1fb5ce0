"""The prompt gives whole statements, however they were typed, and keeps them to itself."""

from __future__ import annotations

import io
import stat
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from headrace.cli import prompt

TABLES = ("public.orders", "orders")


def typed(keys: str) -> list[str]:
    """Return the statements that a terminal gives when these keys are pressed."""
    with create_pipe_input() as pipe, create_app_session(input=pipe, output=DummyOutput()):
        pipe.send_text(keys)
        return list(prompt.statements(lambda: TABLES, terminal=True))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return tmp_path / "headrace/history"


def test_a_statement_ends_with_its_semicolon_and_the_session_with_exit() -> None:
    assert typed("SELECT 1\r, 2;\r\rSELECT 3;\rexit\r") == ["SELECT 1\n, 2;", "SELECT 3;"]


def test_the_end_of_the_input_ends_the_session() -> None:
    assert typed("SELECT 1;\r\x04") == ["SELECT 1;"]


def test_an_interrupt_drops_what_was_begun() -> None:
    assert typed("SELECT\r\x03SELECT 2;\rquit\r") == ["SELECT 2;"]


def test_names_and_words_of_sql_are_completed_in_any_case() -> None:
    completer = prompt.completer(lambda: TABLES)

    def offered(text: str) -> list[str]:
        return [found.text for found in completer.get_completions(Document(text), CompleteEvent())]

    assert offered("SELECT * FROM public.o") == ["public.orders"]
    assert offered("select * from ORD") == ["orders", "ORDER"]


def test_what_was_typed_comes_back_and_nobody_else_may_read_it(state: Path) -> None:
    assert typed("SELECT 1;\rexit\r") == ["SELECT 1;"]
    assert stat.S_IMODE(state.stat().st_mode) == 0o600
    # Up, past the `exit`, to the statement.
    assert typed("\x1b[A\x1b[A\rexit\r") == ["SELECT 1;"]


def test_a_statement_with_a_password_is_not_kept(state: Path) -> None:
    told = "CREATE SOURCE s FROM MYSQL CONNECTION 'mysql://me:hunter2@db/';"
    parted = "CREATE SOURCE p FROM POSTGRES CONNECTION 'host=db password =\rhunter2' PUBLICATION 'p';"
    assert typed(f"SELECT 1;\r{told}\r{parted}\r\x04") == ["SELECT 1;", told, parted.replace("\r", "\n")]
    assert typed("\x1b[A\r\x04") == ["SELECT 1;"]
    typed("CREATE SOURCE s FROM MYSQL CONNECTION 'mysql://me:hunter2@db/'\r\x03exit\r")
    typed("CREATE SOURCE s FROM MYSQL CONNECTION 'mysql://me:hunter2@db/'\r\x04")
    kept = state.read_text()
    assert "SELECT 1;" in kept
    assert "hunter2" not in kept


def test_lines_that_no_terminal_gives_are_taken_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT 1;\nSELECT\n2;\n"))
    assert list(prompt.statements(lambda: TABLES, terminal=False)) == ["SELECT 1;", "SELECT\n2;"]
