"""Standard output and standard error: a pipe, a terminal, one without colours, a reader that goes away.

Python ignores SIGPIPE, so a lost connection is an ordinary error and does not end the process. A reader of
our output that goes away raises `BrokenPipeError`: `main` then ends without a traceback, with the exit code
that a shell gives to a program that SIGPIPE ended.

The name of a table may hold control characters that a terminal obeys, so it must pass `printable` before it
is printed. A terminal whose locale is not UTF-8 gets ASCII (`is_ascii`, `in_ascii`): it would show other
bytes as other letters, or obey them. A pipe or a file gets every letter.
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
    """A console whose reader may go away; rich's own would end the process with the exit code of a bug."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError

    @property
    def is_live(self) -> bool:
        """Tell whether output can be overwritten: it goes to a terminal that can move its cursor."""
        return self.file.isatty() and self.is_terminal and not self.is_dumb_terminal


def is_ascii(stream: IO[str]) -> bool:
    """Tell whether the stream is a terminal whose locale is not UTF-8; a pipe or a file takes all letters."""
    if not stream.isatty():
        return False
    environment = _environment()
    locale = next((value for name in _LOCALE if (value := environment.get(name))), "C")
    unicode = (getattr(stream, "encoding", None) or "").lower().startswith("utf")
    return not (unicode and locale.lower().replace("-", "").endswith("utf8"))


def _environment() -> Mapping[str, str]:
    """The variables that this process was given: in the locale C, Python itself sets LC_CTYPE to C.UTF-8."""
    if os.environ.get("LC_CTYPE") != "C.UTF-8":
        return os.environ
    try:
        given = Path("/proc/self/environ").read_text(errors="replace").split("\0")
    except OSError:
        return os.environ
    return {name: value for name, _, value in (each.partition("=") for each in given)}


def in_ascii(text: str) -> str:
    """The text in ASCII: plain signs for ours, escapes for other letters."""
    return text.translate(_ASCII).encode("ascii", "backslashreplace").decode()


def printable(text: str) -> str:
    """Escape what a terminal obeys: control characters, line breaks, marks that turn the text's direction."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def printable_lines(text: str) -> str:
    """The text with its line breaks, and `printable` for each line."""
    return "\n".join(map(printable, text.split("\n")))


def say(text: str, *, file: TextIO | None = None) -> None:
    """Print lines for a person. They are escaped, since names come from somebody's database."""
    print(printable_lines(text), file=file)


def _escape(letter: str) -> str:
    # Spaces of other widths are harmless: print a plain space.
    return " " if unicodedata.category(letter) == "Zs" else letter.encode("unicode_escape").decode()


def bear_all_letters() -> None:
    """Let standard output escape letters that its encoding lacks, as standard error does."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        with suppress(OSError):  # the file below it was replaced since it was opened
            sys.stdout.reconfigure(errors="backslashreplace")


def is_unread() -> bool:
    """Tell whether the reader of standard output went away; later output then goes to /dev/null."""
    asked = select.poll()
    try:
        asked.register(sys.stdout.fileno(), 0)
    except (OSError, ValueError):  # it is no file
        return False
    unread = any(event & select.POLLERR for _, event in asked.poll(0))
    if unread:
        # Python flushes when it ends, and would report that the flush failed.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return unread
