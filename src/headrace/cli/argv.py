"""Passwords on our own command line: we overwrite them, because `ps` shows a command line to every user.

    headrace run mysql://me:secret@db/shop     as it was typed
    headrace run mysql://me:xxxxxx@db/shop     as `ps` shows it from then on

`ps` reads the memory in which the kernel handed over the arguments. The process overwrites the password in
that memory, byte for byte, which needs no privilege and no package (decision 0028). Our child processes get
addresses over standard input, so their command lines hold no password. While Python starts, before this
module runs, others can see the password: `docs/configure.md` says so, and names the other ways to give one.
On a kernel other than Linux nothing is overwritten, and a warning says so. The prompt of `headrace sql`
(`prompt`) uses this module to keep statements with passwords out of its history, and `parser` to mask
argparse's messages.

Text that may be a password counts as one: to mask too much does no harm. So a URL of any scheme counts, not
only the schemes that sources declare, and its password may hold characters that should have been
percent-encoded.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# In a URL, also within a statement: the text between the user's name and the last @ before the path. If there
# is no such @, the text up to the last @ of the word: a password may hold a slash.
_IN_URL = re.compile(rb"://[^/:@\x00]*:(?:([^/\x00]*)@|([^\s'\"\x00]*)@)")
# As a parameter of a URL, or in key=value pairs, with or without quotes. A statement doubles the quotes.
_AS_PARAMETER = re.compile(
    rb"(?i)(?:password|client_secret|client_key|server_key)\s*=\s*"
    rb"(?:''((?:[^'\\]|\\.)+)''|'((?:[^'\\]|\\.)*)'|((?:[^\s&'\\\x00]|\\.)+))"
)


def hide_passwords(argv: Sequence[str]) -> None:
    """Overwrite the passwords in the arguments of this process, if there are any."""
    if not any(True for argument in argv for _ in passwords(argument.encode(errors="surrogateescape"))):
        return
    if not _overwrite():
        print(
            "warning: other users of this machine can see the password in the list of processes; "
            "give it in the environment, or in a password file",
            file=sys.stderr,
        )


def passwords(text: bytes) -> Iterator[tuple[int, int]]:
    """Yield the start and stop of each password in a text."""
    for pattern in (_IN_URL, _AS_PARAMETER):
        for match in pattern.finditer(text):
            start, stop = match.span(match.lastindex or 0)
            if stop > start:
                yield start, stop


def mask(text: str) -> str:
    """The text with an x for each byte of a password."""
    hidden = bytearray(text, "utf-8", "surrogateescape")
    for first, last in passwords(bytes(hidden)):
        hidden[first:last] = b"x" * (last - first)
    return hidden.decode("utf-8", "surrogateescape")


def _overwrite() -> bool:
    """Overwrite the passwords in the memory that the kernel shows; tell whether that was possible."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, stop = int(fields[45]), int(fields[46])  # arg_start and arg_end; 2 fields are cut off
        shown = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return False
    # Compare first, so that no other memory is ever overwritten.
    if not 0 < stop - start == len(shown) or ctypes.string_at(start, len(shown)) != shown:
        return False
    for first, last in passwords(shown):
        ctypes.memset(start + first, ord("x"), last - first)
    return True
