"""The kinds of values, and which of them convert and compare alike in every session.

A rule that does not know a kind, or knows that the session decides, raises `UnknownValue`. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto


class UnknownValue(Exception):
    """The value may hang on the session that computes it, for all that is known here."""


class ValueKind(Enum):
    """The values of an expression, by what converting and comparing them hangs on."""

    NULL = auto()
    EXACT = auto()  # whole and decimal numbers
    UNSIGNED = auto()  # whole numbers that are unsigned
    FLOAT = auto()
    TEXT = auto()  # in a charset and a collation of its own
    CODED = auto()  # in a charset of its own, compared as the session says
    WORDS = auto()  # in the charset of the session
    BYTES = auto()
    DATE = auto()
    DAY = auto()  # a date that was made: of one that is none, the session may make NULL
    MOMENT = auto()  # date and time
    INSTANT = auto()  # one that was made
    TIME = auto()
    JSON = auto()


NUMBERS = frozenset((ValueKind.EXACT, ValueKind.UNSIGNED, ValueKind.FLOAT))
TEXTS = frozenset((ValueKind.TEXT, ValueKind.CODED, ValueKind.WORDS))
DAYS = frozenset((ValueKind.DATE, ValueKind.MOMENT))
MADE = frozenset((ValueKind.DAY, ValueKind.INSTANT))
CLOCKS = DAYS | {ValueKind.TIME}
WRITTEN = frozenset(
    (ValueKind.TEXT, ValueKind.CODED, ValueKind.BYTES, ValueKind.JSON)
)  # bytes that hang on nobody
DOCUMENTS = frozenset((ValueKind.TEXT, ValueKind.JSON))
SCALARS = NUMBERS | TEXTS | {ValueKind.BYTES, ValueKind.JSON}


def check(kind: ValueKind, among: frozenset[ValueKind], result: ValueKind | None = None) -> ValueKind:
    """The result of a value of one of these kinds; NULL is of each."""
    if kind is not ValueKind.NULL and kind not in among:
        raise UnknownValue
    return kind if result is None else result


def compare(one: ValueKind, other: ValueKind) -> None:
    """Refuse a comparison that hangs on the session."""
    kinds = {one, other} - {ValueKind.NULL}
    if kinds <= CLOCKS:
        if len(kinds) == 2 and ValueKind.TIME in kinds:
            raise UnknownValue
    elif not kinds <= SCALARS or (kinds <= {ValueKind.CODED, ValueKind.WORDS} and kinds):
        raise UnknownValue


def one_of(kinds: Sequence[ValueKind]) -> ValueKind:
    """The kind of a value that is one of some."""
    found = set(kinds) - {ValueKind.NULL}
    if found and found <= DAYS | MADE:
        return ValueKind.DAY if found <= {ValueKind.DATE, ValueKind.DAY} else ValueKind.INSTANT
    if len(found) <= 1:
        return found.pop() if found else ValueKind.NULL
    if found <= NUMBERS:
        return ValueKind.FLOAT if ValueKind.FLOAT in found else ValueKind.UNSIGNED
    return join_texts(list(found))


def join_texts(kinds: Sequence[ValueKind]) -> ValueKind:
    """The kind of texts that are put together, or of one that is made of others."""
    found = set(kinds) - {ValueKind.NULL}
    if not found <= SCALARS | CLOCKS:
        raise UnknownValue
    for kind in (ValueKind.BYTES, ValueKind.TEXT, ValueKind.JSON, ValueKind.CODED):
        if kind in found:
            if kind is ValueKind.BYTES and ValueKind.WORDS in found | {_as_text(each) for each in found}:
                raise UnknownValue
            return ValueKind.TEXT if kind is ValueKind.JSON else kind
    return ValueKind.WORDS


def _as_text(kind: ValueKind) -> ValueKind:
    return ValueKind.WORDS if kind in NUMBERS | CLOCKS else kind
