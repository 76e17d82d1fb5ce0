"""Names that are near to one that nobody knows: for whoever typed it."""

from __future__ import annotations

from collections.abc import Iterable

MOST = 3
_NEARNESS = 0.7
_LOOKED_AT = 5_000  # names: more would keep whoever mistyped one waiting


def near(name: str, names: Iterable[str]) -> list[str]:
    """The known names that are most like this one, in any case; of `schema.table` each part is."""
    wish = _parts(name)
    found = []
    for each in sorted(names)[:_LOOKED_AT]:
        parts = _parts(each)
        likeness = _likeness(wish, parts if len(wish) > 1 or len(parts) == 1 else parts[-1:])
        if likeness >= _NEARNESS:
            found.append((-likeness, each))
    return [each for _, each in sorted(found)[:MOST]]


def did_you_mean(name: str, names: Iterable[str]) -> str | None:
    """A question for whoever typed the name, the detail of an error; None where no known name is like it."""
    found = [each if '"' in each else f'"{each}"' for each in near(name, names)]
    return f"did you mean {' or '.join(found)}?" if found else None


def _parts(name: str) -> list[str]:
    return name.lower().replace('"', "").split(".")


def _likeness(one: list[str], other: list[str]) -> float:
    """The likeness of the parts that are least alike, from 0 to 1."""
    # Imported late: most commands end without a name that nobody knows.
    from difflib import SequenceMatcher

    if len(one) != len(other):
        return 0.0
    found = 1.0
    for first, second in zip(one, other, strict=True):
        matcher = SequenceMatcher(None, first, second)
        if matcher.real_quick_ratio() < _NEARNESS or matcher.quick_ratio() < _NEARNESS:
            return 0.0
        found = min(found, matcher.ratio())
    return found
