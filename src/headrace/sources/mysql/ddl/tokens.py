"""The words of a statement: names, keywords, texts and signs, as the server's own lexer takes them apart.

    ALTER /* why */ TABLE `a``b`.t COMMENT 'it''s', /*!80000 RENAME x */ ...
    WORD  ......... WORD  NAME   ↑ WORD     TEXT   ↑        WORD   WORD

It reads no further than it is asked. Comments are passed over before, within and behind; one with a version
is read if the server reads it. What quotes mean follows the statement's SQL mode. A text that ends within a
quote or a comment is refused: it is never guessed at.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 1 << 2, 1 << 20
_SPACE = re.compile(r"[\s\0]+", re.ASCII)
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_VERSION = re.compile(r"\d{5,6}")
_DASHES = re.compile(r"--(?=[\s\x00-\x1f]|\Z)", re.ASCII)
_NO_BREAK = "\u00a0"  # parts words in charsets of one byte, and belongs to them in UTF-8
_MYSQL_ALONE = range(50700, 100000)  # versions in comments that MariaDB leaves to MySQL


class Unreadable(Exception):
    """The statement cannot be told; the exception holds none of it."""


class Sign(Enum):
    """Kinds of tokens."""

    WORD = auto()  # a keyword, or a name without quotes
    NAME = auto()  # a quoted name
    TEXT = auto()
    OTHER = auto()
    END = auto()


class MysqlToken(NamedTuple):
    """One token; the value of a text is what stands between its quotes, as it is written there."""

    sign: Sign
    value: str = ""

    @property
    def keyword(self) -> str:
        """The word in capitals; empty if it is none."""
        return self.value.upper() if self.sign is Sign.WORD else ""


END = MysqlToken(Sign.END)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The server that ran a statement, and the mode that it ran it in."""

    mariadb: bool
    version: int  # 90704 for 9.7.4
    sql_mode: int = 0

    @property
    def ansi_quotes(self) -> bool:
        return bool(self.sql_mode & ANSI_QUOTES)

    @property
    def backslashes(self) -> bool:
        return not self.sql_mode & NO_BACKSLASH_ESCAPES

    def reads(self, version: int, *, own: bool) -> bool:
        """Tell whether the server reads a comment with this version; `own` is one of MariaDB's alone."""
        if own and not self.mariadb:
            return False
        return version <= self.version and (not self.mariadb or own or version not in _MYSQL_ALONE)


class StatementWords:
    """A statement, read word by word."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.dialect = dialect
        self._tokens = _tokens(text, dialect)
        self._next = next(self._tokens, END)

    @property
    def next(self) -> MysqlToken:
        """The token that is read next; `END` behind the last one."""
        return self._next

    def read(self) -> MysqlToken:
        token, self._next = self._next, next(self._tokens, END)
        return token

    def skip(self, *words: str) -> bool:
        """Read these keywords if they come next, all or none but the first; tell whether they came."""
        if self._next.keyword != words[0]:
            return False
        for word in words:
            self.expect(word)
        return True

    def skip_any(self, *words: str) -> None:
        """Read whatever of these keywords comes next."""
        while self._next.keyword in words:
            self.read()

    def expect(self, word: str) -> None:
        if self.read().keyword != word:
            raise Unreadable

    def sign(self, value: str) -> bool:
        """Read a sign if it comes next; tell whether it came."""
        if self._next != MysqlToken(Sign.OTHER, value):
            return False
        self.read()
        return True

    def name(self) -> str:
        """Read a name, quoted or not."""
        token = self.read()
        if token.sign not in (Sign.WORD, Sign.NAME) or not token.value:
            raise Unreadable
        return token.value

    def end(self) -> None:
        """Make sure that nothing follows."""
        self.sign(";")
        if self._next is not END:
            raise Unreadable


def _tokens(text: str, dialect: Dialect) -> Iterator[MysqlToken]:
    at, within = 0, False  # within a comment that is read
    while at < len(text):
        found = _SPACE.match(text, at) or _DASHES.match(text, at)
        if found or text[at] == "#":
            at = found.end() if found and not found[0].startswith("-") else _line_end(text, at)
        elif within and text.startswith("*/", at):
            at, within = at + 2, False
        elif text.startswith("/*", at):
            at, reads = _comment(text, at, dialect)
            if reads and within:
                raise Unreadable
            within = within or reads
        else:
            token, at = _token(text, at, dialect)
            yield token
    if within:
        raise Unreadable


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end + 1


def _comment(text: str, at: int, dialect: Dialect) -> tuple[int, bool]:
    """Find where reading goes on, and whether that is within the comment."""
    own = text.startswith("/*M!", at)
    if own or text.startswith("/*!", at):
        inside = at + (4 if own else 3)
        version = _VERSION.match(text, inside)
        if dialect.reads(int(version[0]) if version else 0, own=own):
            return (version.end() if version else inside), True
        if text.find("/*", inside, text.find("*/", inside)) >= 0:
            raise Unreadable  # a comment within one that is not read: releases differ in where it ends
    end = text.find("*/", at + 2)
    if end < 0:
        raise Unreadable
    return end + 2, False


def _token(text: str, at: int, dialect: Dialect) -> tuple[MysqlToken, int]:
    first = text[at]
    if first == "`" or (first == '"' and dialect.ansi_quotes):
        end = _end_of_quote(text, at, escapes=False)
        return MysqlToken(Sign.NAME, text[at + 1 : end - 1].replace(first * 2, first)), end
    if first in "'\"":
        end = _end_of_quote(text, at, escapes=dialect.backslashes)
        return MysqlToken(Sign.TEXT, text[at + 1 : end - 1]), end
    word = _WORD.match(text, at)
    if word:
        if _NO_BREAK in word[0]:
            raise Unreadable
        return MysqlToken(Sign.WORD, word[0]), word.end()
    return MysqlToken(Sign.OTHER, first), at + 1


def _end_of_quote(text: str, at: int, *, escapes: bool) -> int:
    """Find where a quote that opens at a place ends; a doubled one stands for itself."""
    quote, at = text[at], at + 1
    while at < len(text):
        if escapes and text[at] == "\\":
            at += 2
        elif text[at] != quote:
            at += 1
        elif text.startswith(quote, at + 1):
            at += 2
        else:
            return at + 1
    raise Unreadable
