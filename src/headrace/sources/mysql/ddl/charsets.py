"""The charsets that statements are logged in, by the number of a collation, as Python reads them.

In some of them a byte of a quote or a backslash may be the second half of a character: a statement has to be
read in its own charset before it is taken apart. In the others each byte is a character, and one that means
nothing is handed on as it is: it may stand in a comment, as those of clients that say latin1 and send UTF-8
do. The server's names of tables are utf8mb3, whatever the statement was written in.
"""

from __future__ import annotations

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
