"""The prompt of `headrace sql`: statements up to a semicolon, a history, completion of names.

On a terminal by prompt_toolkit, from anything else line by line: which of them changes comfort, and nothing
of what is run. The history is a file of the user's that nobody else may read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory

KEYWORDS = tuple(
    """SELECT FROM WHERE GROUP BY ORDER LIMIT JOIN LEFT USING ON AS WITH UNION ALL DISTINCT COUNT SUM DESCRIBE
    SHOW TABLES SOURCES VIEWS CREATE SOURCE POSTGRES CONNECTION PUBLICATION DROP VIEW""".split()
)
FIRST, MORE = "headrace> ", "      ... "

Names = Callable[[], Sequence[str]]


def statements(names: Names, *, terminal: bool) -> Iterator[str]:
    """Read a statement at a time; ends with the input, `exit` or `quit`."""
    read = _reader(names, terminal)
    held: list[str] = []
    while True:
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


def _reader(names: Names, terminal: bool) -> Callable[[str], str]:
    if not terminal:
        return _plain
    kept = _history()
    session: PromptSession[str] = PromptSession(
        history=InMemoryHistory() if kept is None else FileHistory(str(kept)),
        completer=completer(names),
        complete_while_typing=False,
    )
    return session.prompt


def completer(names: Names) -> WordCompleter:
    """Completes what SQL knows, and the names that there are when it is asked."""
    return WordCompleter(lambda: [*names(), *KEYWORDS], ignore_case=True, WORD=True)


def _plain(prompt: str) -> str:
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line.rstrip("\n")


def _history() -> Path | None:
    """The file of what was typed before; None where it can't be kept."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    kept = Path(state, "headrace", "history")
    try:
        kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        kept.touch(mode=0o600)
    except OSError:
        return None
    return kept
