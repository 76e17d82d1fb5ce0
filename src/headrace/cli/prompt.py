"""The prompt of `headrace sql`: statements up to a semicolon, a history, completion of names.

A terminal is read with prompt_toolkit, anything else line by line; both run the same statements. The history
is a file that only its user may read. A statement with a password is never written to it, and leaves this
session's memory once the statement is complete.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from headrace.cli.argv import passwords
from headrace.sources.registry import declaration, kinds

_WORDS = """SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN LEFT USING ON AS WITH UNION ALL DISTINCT COUNT SUM
    DESCRIBE SHOW TABLES SOURCES VIEWS CREATE SOURCE CONNECTION DROP VIEW""".split()
KEYWORDS = (
    *_WORDS,
    *(kind.keyword for kind in map(declaration, kinds())),
    *(option.name.upper() for kind in map(declaration, kinds()) for option in kind.in_sql),
)
FIRST, MORE = "headrace> ", "      ... "

Names = Callable[[], Sequence[str]]


def statements(names: Names, *, terminal: bool) -> Iterator[str]:
    """Read one statement after another; the input's end, `exit` and `quit` end it."""
    history = _History(_file()) if terminal else None
    read = _plain if history is None else _prompt(names, history)
    try:
        yield from _whole(read, history)
    finally:
        if history is not None:
            history.end()


def _whole(read: Callable[[str], str], history: _History | None) -> Iterator[str]:
    held: list[str] = []
    while True:
        if history is not None and not held:
            history.end()
        try:
            line = read(MORE if held else FIRST)
        except KeyboardInterrupt:
            held = []
            continue
        except EOFError:
            return
        if not held and line.strip().rstrip(";").lower() in ("exit", "quit", "\\q"):
            return
        held.append(line)
        if line.rstrip().endswith(";"):
            yield "\n".join(held)
            held = []
        elif not "".join(held).strip():
            held = []


class _History(History):
    """The typed lines. A statement's lines are kept once it is complete, if it holds no password."""

    def __init__(self, file: Path | None) -> None:
        super().__init__()
        self._lasting = InMemoryHistory() if file is None else FileHistory(str(file))
        self._lines: list[str] = []

    def load_history_strings(self) -> Iterable[str]:
        return self._lasting.load_history_strings()

    def store_string(self, string: str) -> None:
        self._lines.append(string)

    def end(self) -> None:
        """Keep the lines of the statement, or forget them."""
        if any(True for _ in passwords("\n".join(self._lines).encode(errors="surrogateescape"))):
            del self._loaded_strings[: len(self._lines)]
        else:
            for line in self._lines:
                self._lasting.store_string(line)
        self._lines = []


def _prompt(names: Names, history: History) -> Callable[[str], str]:
    session: PromptSession[str] = PromptSession(
        history=history, completer=completer(names), complete_while_typing=False
    )
    return session.prompt


def completer(names: Names) -> WordCompleter:
    """Completes SQL's keywords and the names of the moment."""
    return WordCompleter(lambda: [*names(), *KEYWORDS], ignore_case=True, WORD=True)


def _plain(prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _file() -> Path | None:
    """The history's file, which is made if need be; None if that fails."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    kept = Path(state, "headrace", "history")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.touch(mode=0o600)
    except OSError:
        return None
    return kept
