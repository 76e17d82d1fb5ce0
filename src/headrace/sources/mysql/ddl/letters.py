"""Letter case in the names of a server that knows names in any case (`lower_case_table_names`).

    statement   SHOP.İtems      what somebody typed
    server      shop.items      each character by itself, as the server's own tables lower it
    Python      shop.i̇tems      one more character: not the same name

Such a server compares names in small letters, and mostly keeps them so. What it makes of a capital one hangs
on its release: newer tables know more letters. It is the letter itself, or the first character of what Python
makes of it; for the letters of old alphabets it is surely the second, which tests ask the servers. So a name
*may* be the one that is meant without being so for sure.
"""

from __future__ import annotations

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
