"""Passwords in what was typed: overwritten in our own command line, which `ps` shows to every user.

    headrace run mysql://me:secret@db/shop     as it was typed
    headrace run mysql://me:xxxxxx@db/shop     as `ps` shows it from then on

The kernel shows the memory that the arguments were handed over in, so that is what is written to: in place,
byte for byte, by the process itself, which needs no privilege and no package (decision 0028). Our processes
are given addresses over their standard input, so there is nothing to be seen of them. Before this module
runs, for the moment that Python takes to start, the password could be seen: `docs/configure.md` says so, and
names the other ways to give one. Where the kernel is another than Linux nothing is overwritten, and that is
said. The prompt of `headrace sql` asks here before it keeps a statement (`prompt`), and what argparse says of
an argument that it does not know is masked (`main`).

What looks like a password is one: a part of an address more or less is no loss. So a URL of any scheme
counts, not only of those that a source declares, and its password may hold what should have been
percent-encoded.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

# In a URL, also within a statement: what is between the user's name and the last @ before the path begins;
# where none is there, the last @ of the word, for a password with a slash.
_IN_URL = re.compile(rb"://[^/:@\x00]*:(?:([^/\x00]*)@|([^\s'\"\x00]*)@)")
# As a parameter of a URL, or in key=value pairs with or without quotes, which a statement doubles.
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
    """The places of passwords in a text, as they are spelled there."""
    for pattern in (_IN_URL, _AS_PARAMETER):
        for match in pattern.finditer(text):
            start, stop = match.span(match.lastindex or 0)
            if stop > start:
                yield start, stop


def mask(text: str) -> str:
    """The text with its passwords written over."""
    hidden = bytearray(text, "utf-8", "surrogateescape")
    for first, last in passwords(bytes(hidden)):
        hidden[first:last] = b"x" * (last - first)
    return hidden.decode("utf-8", "surrogateescape")


def _overwrite() -> bool:
    """Tell whether the passwords of our arguments could be overwritten where the kernel reads them."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, stop = int(fields[45]), int(fields[46])  # arg_start and arg_end; what is before has 2 fields
        shown = Path("/proc/self/cmdline").read_bytes()
    except (OSError, ValueError, IndexError):
        return False
    # What stands there is compared first: no other memory is ever written to.
    if not 0 < stop - start == len(shown) or ctypes.string_at(start, len(shown)) != shown:
        return False
    for first, last in passwords(shown):
        ctypes.memset(start + first, ord("x"), last - first)
    return True
