"""A terminal of a size for a program under test: what it writes, what is typed, and what becomes of a resize.

with terminal(100, 30) as it:
    process = it.start([sys.executable, "-m", "headrace", ...], environment)
    it.until(lambda: "text" in it.text, "the text")
    it.type("\\x03")                Ctrl-C, as the kernel makes a signal of it
"""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import IO

from headrace_testing.mirror_process import Process, Program
from headrace_testing.postmaster import wait_for

_ESCAPES = re.compile(r"\x1b(?:\[[0-9;?]*[A-Za-z]|\][^\x07]*\x07|[()][A-Z0-9])")
HOME = "\x1b[H"


def plain(text: str) -> str:
    """The text of what was written."""
    return _ESCAPES.sub("", text).replace("\r\n", "\n")


def _own_terminal() -> None:
    """Do as a shell's login does: control the terminal, and hear when it goes, whatever the tests ignore."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Terminal:
    """The side of a pseudo-terminal where a person sits."""

    def __init__(self, columns: int, lines: int) -> None:
        self._ours, self.theirs = os.openpty()
        self._seen: list[bytes] = []
        self.resize(columns, lines)
        self._reader = threading.Thread(target=self._read, name="terminal", daemon=True)
        self._reader.start()

    @property
    def raw(self) -> str:
        """All that was written so far, as it was."""
        return b"".join(self._seen).decode(errors="replace")

    @property
    def text(self) -> str:
        """All that was written so far, without what moves a cursor or colours."""
        return plain(self.raw)

    @property
    def page(self) -> str:
        """The last page of a program that draws its pages from the corner on."""
        return "\n".join(map(str.rstrip, plain(self.raw.rpartition(HOME)[2]).split("\n")))

    def start(
        self, command: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """A program in this terminal, with nothing else in its environment than what is given and ours."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("LC_")}
        return subprocess.Popen(
            command,
            stdin=self.theirs,
            stdout=self.theirs,
            stderr=self.theirs,
            env={**plain, "TERM": "xterm-256color", "LANG": "C.UTF-8", **(environment or {})},
            start_new_session=True,
            preexec_fn=_own_terminal,
        )

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        try:
            wait_for(condition, what)
        except TimeoutError as late:
            late.add_note(f"it shows:\n{plain(self.raw)[-4000:]}")
            raise

    def _read(self) -> None:
        with suppress(OSError):
            while data := os.read(self._ours, 1 << 16):
                self._seen.append(data)

    def close(self) -> None:
        for side in (self.theirs, self._ours):
            with suppress(OSError):
                os.close(side)


@contextmanager
def terminal(columns: int, lines: int) -> Iterator[Terminal]:
    made = Terminal(columns, lines)
    try:
        yield made
    finally:
        made.close()


def in_terminal(made: Terminal, program: Program) -> Program:
    """The program with this terminal as its output."""

    def start(arguments: Sequence[str], environment: Mapping[str, str], log: IO[bytes]) -> Process:
        shown = {**environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        with os.fdopen(os.dup(made.theirs), "wb") as theirs:
            return program(arguments, shown, theirs)

    return start
