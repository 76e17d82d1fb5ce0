"""The words of a statement: its tokens as the server's lexer reads them, its charset, the case of its names.

    ALTER /* why */ TABLE `a``b`.t COMMENT 'it''s', /*!80000 RENAME x */ ...
    WORD  ......... WORD  NAME   ↑ WORD     TEXT   ↑        WORD   WORD

The lexer reads no further than it is asked. It skips comments; it reads one with a version if the server
does. The statement's SQL mode decides what quotes mean. A text that ends within a quote or a comment is
refused, and never guessed at.

A statement is first decoded by its own charset, which the log names by the number of a collation. In some
charsets the second byte of a character may look like a quote or a backslash. In single-byte charsets every
byte is a character, and a byte without a meaning is passed on as it is: it may stand in a comment, for
instance from a client that declares latin1 and sends UTF-8. The server's own names of tables are utf8mb3,
whatever the statement's charset is.

With `lower_case_table_names` a server compares names in lower case, and mostly stores them so:

    statement   SHOP.İtems      what somebody typed
    server      shop.items      each character by itself, as the server's own tables lower it
    Python      shop.i̇tems      one more character: not the same name

The lower case of a letter depends on the release: newer tables know more letters. It is the letter itself, or
the first character of Python's lower case. For Latin, Greek and Cyrillic letters it is always the latter, as
tests prove on the servers. So for other letters we only know that a name *may* be the one that is meant.
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
    """Decode a statement; UnicodeError if its charset can't tell what it says.

    Bytes without a meaning become lone surrogates, and a name with one can't be read.
    """
    if charset in _UTF8:
        return statement.decode("utf-8", "surrogateescape")
    # In an unknown charset, read the bytes that all charsets have in common.
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
    """The statement can't be read; the exception holds none of its text."""


class Sign(Enum):
    """Kinds of tokens."""

    WORD = auto()  # a keyword, or a name without quotes
    NAME = auto()  # a quoted name
    TEXT = auto()
    OTHER = auto()
    END = auto()


class MysqlToken(NamedTuple):
    """One token; the value of a text is the part between its quotes, as it is written there."""

    sign: Sign
    value: str = ""

    @property
    def keyword(self) -> str:
        """The word in capitals; empty if the token is no word."""
        return self.value.upper() if self.sign is Sign.WORD else ""


END = MysqlToken(Sign.END)


@dataclass(frozen=True, slots=True)
class Dialect:
    """The server that ran a statement, and the SQL mode of its session."""

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
        """Tell whether the server reads a comment with this version; `own`: a comment of MariaDB's kind."""
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
        """The next token, which stays unread; `END` after the last one."""
        return self._next

    def read(self) -> MysqlToken:
        token, self._next = self._next, next(self._tokens, END)
        return token

    def skip(self, *words: str) -> bool:
        """Read these keywords if the first comes next; the others must follow. Tell whether they came."""
        if self._next.keyword != words[0]:
            return False
        for word in words:
            self.expect(word)
        return True

    def skip_any(self, *words: str) -> None:
        """Read any of these keywords, as long as one comes next."""
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
            raise Unreadable  # a comment within a skipped one: releases differ in where it ends
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
    """Find the end of the quote that opens at a place; a doubled quote stands for itself."""
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


# Every release lowers the capital letters of these alphabets: Latin, Greek, Cyrillic.
_SETTLED = (range(0x220), range(0x386, 0x3AC), range(0x400, 0x482))


def means(stored_name: str, typed_name: str) -> bool | None:
    """Tell whether a typed name means the stored one; None if that depends on the release."""
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
    """The lower-case letter, one character, that a server may make of a letter."""
    return letter.lower()[0]


def is_settled(letter: str) -> bool:
    """Tell whether every release lowers this letter, if it is a capital one."""
    return any(ord(letter) in each for each in _SETTLED)
