"""Twin of `queue.composite`: one row at a time, by the grammar of PostgreSQL's manual (8.16.6)."""

from __future__ import annotations

import re

from headrace_testing.reference.rows import MalformedRow

_QUOTED = re.compile(rb'"((?:[^"\\]|""|\\\\)*)"', re.DOTALL)
_PLAIN = re.compile(rb'[^",()\\]*', re.DOTALL)
_DOUBLED = re.compile(rb'""|\\\\')
_QUOTES = re.compile(rb'[",()\\\s]')


def fields(text: bytes) -> list[bytes | None]:
    """The fields of one composite value."""
    if not (text.startswith(b"(") and text.endswith(b")") and len(text) > 1):
        raise MalformedRow
    found: list[bytes | None] = []
    at, last = 1, len(text) - 1
    while True:
        quoted = _QUOTED.match(text, at, last)
        plain = _PLAIN.match(text, at, last)
        assert plain is not None
        if quoted is not None:
            found.append(_DOUBLED.sub(lambda match: match[0][:1], quoted[1]))
            at = quoted.end()
        else:
            found.append(plain[0] or None)
            at = plain.end()
        if at == last:
            return found
        if text[at : at + 1] != b",":
            raise MalformedRow
        at += 1


def encode(values: list[bytes | None]) -> bytes:
    """A row as the server prints it."""
    return b"(" + b",".join(map(_field, values)) + b")"


def _field(value: bytes | None) -> bytes:
    if value is None:
        return b""
    if value and not _QUOTES.search(value):
        return value
    return b'"' + value.replace(b"\\", b"\\\\").replace(b'"', b'""') + b'"'
