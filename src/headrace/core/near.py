"""Names that are near to one that nobody knows: for whoever typed it."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 3
_NEARNESS = 0.7
_LOOKED_AT = 5_000  # names: more would keep whoever mistyped one waiting


def near(name: str, known: Iterable[str]) -> list[str]:
    """The known names that are most like this one, in any case; of `schema.table` the table alone may be."""
    # Imported late: most commands end without a name that nobody knows.
    from difflib import get_close_matches

    wish = name.lower()
    spellings: dict[str, str] = {}
    for each in sorted(known)[:_LOOKED_AT]:
        spellings.setdefault(each.lower(), each)
        if "." not in wish:
            spellings.setdefault(each.lower().rpartition(".")[2], each)
    found = [spellings[like] for like in get_close_matches(wish, spellings, 2 * MOST, _NEARNESS)]
    return list(dict.fromkeys(found))[:MOST]


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A question for whoever typed the name, the detail of an error; None where no known name is like it."""
    names = [f'"{each}"' for each in near(name, known)]
    return f"did you mean {' or '.join(names)}?" if names else None
