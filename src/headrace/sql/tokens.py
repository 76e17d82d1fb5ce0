"""SQL text as tokens, each with its place in the text: only so much of SQL as is needed to find names.

    word  "name"  `name`  'text'  12  <anything else, one character>

Comments and white space are left out. Double quotes enclose names, as in PostgreSQL and in the standard; the
session sets Spark to do the same. Text follows Spark: a quote inside is doubled or escaped by a backslash,
and in r'...' a backslash escapes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.core.errors import Misconfigured

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*)
      | (?P<comment>/\*)
      | (?P<raw>[rR]'[^']*'|[rR]"[^"]*")
      | (?P<quoted>"(?:[^"]|"")*"|`(?:[^`]|``)*`)
      | (?P<text>'(?:[^'\\]|\\.|'')*')
      | (?P<number>\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\w*)
      | (?P<word>\w+)
      | (?P<open>["'`])
      | (?P<symbol>.)""",
    re.VERBOSE | re.DOTALL,
)
_EDGE = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class SqlToken:
    """A piece of SQL; `start` and `stop` are its place in the text."""

    kind: str
    text: str
    start: int
    stop: int

    @property
    def keyword(self) -> str:
        """The word in capitals; empty for anything that is not a bare word."""
        return self.text.upper() if self.kind == "word" else ""

    @property
    def name(self) -> str | None:
        """The name without its quotes; None if the token can be no name."""
        if self.kind == "word":
            return self.text
        if self.kind == "quoted":
            quote = self.text[0]
            return self.text[1:-1].replace(quote * 2, quote)
        return None

    @property
    def value(self) -> str:
        """The text between single quotes, as standard SQL reads it."""
        return self.text[1:-1].replace("''", "'")


def tokens(sql: str) -> list[SqlToken]:
    """The tokens of a text, which may hold several statements."""
    return list(_scan(sql))


def statements(sql: str) -> list[str]:
    """The statements of a text, cut at its semicolons, without empty ones."""
    found, start = [], 0
    scanned = tokens(sql)
    for token in scanned:
        if token.text == ";" and token.kind == "symbol":
            found.append((start, token.start))
            start = token.stop
    found.append((start, len(sql)))
    # Blank out earlier statements, so that an error's line and column are those of the whole text.
    return [
        re.sub(r"[^\n]", " ", sql[:a]) + sql[a:b]
        for a, b in found
        if any(a <= token.start < b for token in scanned)
    ]


def malformed_error(sql: str, at: int, what: str) -> Misconfigured:
    """The error for a text that is malformed at a place."""
    line = sql.count("\n", 0, at) + 1
    column = at - (sql.rfind("\n", 0, at) + 1) + 1
    return Misconfigured(
        "SQL_MALFORMED",
        f"{what}, at line {line}, column {column}",
        hint="the statements of headrace sql are in docs/read.md; all others are Spark's own SQL",
    )


def _scan(sql: str) -> Iterator[SqlToken]:
    at = 0
    while at < len(sql):
        match = _TOKEN.match(sql, at)
        assert match is not None, "the last alternative takes any character"
        kind = str(match.lastgroup)
        if kind == "open":
            raise malformed_error(sql, at, f"what the quote {match[0]} opens is never closed")
        stop = _after_comment(sql, at) if kind == "comment" else match.end()
        if kind not in ("space", "comment"):
            yield SqlToken("text" if kind == "raw" else kind, match[0], at, stop)
        at = stop


def _after_comment(sql: str, start: int) -> int:
    """Find the end of a comment; comments may nest."""
    depth = 0
    for edge in _EDGE.finditer(sql, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise malformed_error(sql, start, "a comment is never closed")
