"""Standard output that somebody may stop reading: `headrace check --json | head`.

Python ignores SIGPIPE, so that a lost connection is an error like others and not the end of the process. So a
reader that went away is met as an error, too: `main` ends without a traceback, and with the code that a shell
knows of a program that SIGPIPE ended.
"""

from __future__ import annotations

import os
import select
import sys

from rich.console import Console

UNREAD = 141


class Lines(Console):
    """A console whose reader may go away; rich's own would end the process with the code of a bug."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


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
