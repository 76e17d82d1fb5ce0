"""The words of a statement: names, keywords, texts and signs, as the server's own lexer takes them apart.

    ALTER /* why */ TABLE `a``b`.t COMMENT 'it''s', /*!80000 RENAME x */ ...
    WORD  ......... WORD  NAME   ↑ WORD     TEXT   ↑        WORD   WORD

It reads no further than it is asked. Comments are passed over before, within and behind; one with a version
is read if the server reads it. What quotes mean follows the statement's SQL mode. A text that ends within a
quote or a comment is refused: it is never guessed at.

The charsets that statements are logged in, by the number of a collation, as Python reads them.

In some of them a byte of a quote or a backslash may be the second half of a character: a statement has to be
read in its own charset before it is taken apart. In the others each byte is a character, and one that means
nothing is handed on as it is: it may stand in a comment, as those of clients that say latin1 and send UTF-8
do. The server's names of tables are utf8mb3, whatever the statement was written in.

Letter case in the names of a server that knows names in any case (`lower_case_table_names`).

    statement   SHOP.İtems      what somebody typed
    server      shop.items      each character by itself, as the server's own tables lower it
    Python      shop.i̇tems      one more character: not the same name

Such a server compares names in small letters, and mostly keeps them so. What it makes of a capital one hangs
on its release: newer tables know more letters. It is the letter itself, or the first character of what Python
makes of it; for the letters of old alphabets it is surely the second, which tests ask the servers. So a name
*may* be the one that is meant without being so for sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple

# Numbers of collations by codec; those of utf8mb4 and utf8mb3 are all that are not listed.
_CODECS = {
    "big5hkscs": (1, 84),
    "shift_jis": (13, 88),
    "cp932": (95, 96),
    "euc_jp": (12, 91, 97, 98),
    "euc_kr": (19, 85),
    "gb18030": (24, 28, 86, 87, 248, 249, 250),
    "cp1252": (5, 8, 15, 31, 47, 48, 49, 94),
    "cp850": (4, 80),
    "cp852": (40, 81),
    "cp866": (36, 68),
    "cp1250": (26, 34, 44, 66, 99),
    "cp1251": (14, 23, 50, 51, 52),
    "cp1256": (57, 67),
    "cp1257": (29, 58, 59),
    "iso8859_2": (2, 9, 21, 27, 77),
    "iso8859_7": (25, 70),
    "iso8859_8": (16, 71),
    "iso8859_9": (30, 78),
    "iso8859_13": (20, 41, 42, 79),
    "koi8_r": (7, 74),
    "koi8_u": (22, 75),
    "tis_620": (18, 89),
    "ascii": (11, 65),
    "latin_1": (63,),  # bytes: names beyond ASCII are not told, and don't match
}
_BY_NUMBER = {number: codec for codec, numbers in _CODECS.items() for number in numbers}
_UTF8 = frozenset([33, 45, 46, 76, 83]) | frozenset(range(192, 248)) | frozenset(range(255, 2048))
_OF_SEVERAL_BYTES = frozenset(("big5hkscs", "shift_jis", "cp932", "euc_jp", "euc_kr", "gb18030"))
# Five more letters than Python's.
_LATIN1 = {0xDC00 + byte: chr(byte) for byte in (0x81, 0x8D, 0x8F, 0x90, 0x9D)}


def text_of(statement: bytes, charset: int) -> str:
    """A statement as text; UnicodeError where it can't be told what it says.

    Bytes without a meaning are halves of surrogates, which no name can be read from.
    """
    if charset in _UTF8:
        return statement.decode("utf-8", "surrogateescape")
    # Of charsets that are not known, what all have in common.
    codec = _BY_NUMBER.get(charset, "ascii")
    if codec in _OF_SEVERAL_BYTES:
        return statement.decode(codec)
    text = statement.decode(codec, "surrogateescape")
    return text.translate(_LATIN1) if codec == "cp1252" else text


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


# Their capital letters every release lowers: Latin, Greek, Cyrillic.
_SETTLED = (range(0x220), range(0x386, 0x3AC), range(0x400, 0x482))


def means(stored_name: str, typed_name: str) -> bool | None:
    """Tell whether a typed name means the kept one; None where that hangs on the release."""
    if len(stored_name) != len(typed_name):
        return False
    sure = True
    for ours, theirs in zip(stored_name, typed_name, strict=True):
        if ours == theirs:
            continue
        if lower(ours) != lower(theirs):
            return False
        sure = sure and is_settled(ours) and is_settled(theirs)
    return True if sure else None


def lower(letter: str) -> str:
    """The small letter, one character, that a server may make of one."""
    return letter.lower()[0]


def is_settled(letter: str) -> bool:
    """Tell whether every release lowers the letter, if it is a capital one."""
    return any(ord(letter) in each for each in _SETTLED)
