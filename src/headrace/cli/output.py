"""Standard output and error as they are: a pipe, a terminal, one without colours, a reader that goes away.

Python ignores SIGPIPE, so that a lost connection is an error like others and not the end of the process. So a
reader that went away is met as an error, too: `main` ends without a traceback, and with the code that a shell
knows of a program that SIGPIPE ended.

A name of a table may hold anything, also what a terminal obeys: whoever prints one asks `printable` first. A
terminal whose locale is not UTF-8 gets ASCII (`is_ascii`, `in_ascii`): other bytes would be other letters
there, or commands. Into a pipe or a file, text goes as it is.
"""

from __future__ import annotations

import io
import os
import select
import sys
import unicodedata
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, TextIO

from rich.console import Console

UNREAD = 141
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")  # the first that is set counts
_ASCII = str.maketrans({"✓": "+", "✕": "x", "…": "~", "–": "-", "·": "|", "█": "#", "░": "."})


class Lines(Console):
    """A console whose reader may go away; rich's own would end the process with the code of a bug."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    @property
    def is_live(self) -> bool:
        """Tell whether what was written can be written over: it is a terminal that moves its cursor."""
        return self.file.isatty() and self.is_terminal and not self.is_dumb_terminal


def is_ascii(stream: IO[str]) -> bool:
    """Tell whether a terminal takes ASCII alone, as its locale says; a pipe or a file takes all."""
    if not stream.isatty():
        return False
    environment = _environment()
    locale = next((value for name in _LOCALE if (value := environment.get(name))), "C")
    unicode = (getattr(stream, "encoding", None) or "").lower().startswith("utf")
    return not (unicode and locale.lower().replace("-", "").endswith("utf8"))


def _environment() -> Mapping[str, str]:
    """The variables as they were given: in the locale C, Python sets LC_CTYPE to C.UTF-8 for itself."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return os.environ
    try:
        given = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    except OSError:
        return os.environ
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def in_ascii(text: str) -> str:
    """The text in ASCII: our signs by plain ones, other letters as escapes."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def printable(text: str) -> str:
    """The text with what a terminal obeys as escapes: control characters, line breaks, turns of direction."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def printable_lines(text: str) -> str:
    """The text line by line without what a terminal obeys."""
    return "\n".join(map(printable, text.split("\n")))


def say(text: str, *, file: TextIO | None = None) -> None:
    """Print lines for a person, without what a terminal obeys: names come from somebody's database."""
    print(printable_lines(text), file=file)


def _escape(letter: str) -> str:
    # Blanks of other widths are no danger, and no letters.
    return " " if unicodedata.category(letter) == "Zs" else letter.encode("unicode_escape").decode()


def bear_all_letters() -> None:
    """Have standard output escape what its encoding lacks, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # another file was put under it since it was opened
            sys.stdout.reconfigure(errors="backslashreplace")


def is_unread() -> bool:
    """Tell whether nobody reads standard output any more; what is written from then on goes nowhere."""
    asked = select.poll()
    try:
        asked.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it is no file
        return False
    unread = any(event & select.POLLERR for _, event in asked.poll(0))
    if unread:
        # Python flushes at its end, and would say that it can't.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread
