"""HTML that no text can break: every text is escaped, unless it is `Html` already.

    tag("p", "lag ", tag("b", "3 s"), class_="card")     <p class="card">lag <b>3 s</b></p>

An attribute that is None or False is left out; one that is True has no value.
"""

from __future__ import annotations

from html import escape

_ALONE = frozenset(("br", "hr", "img", "input", "link", "meta"))


class Html(str):
    """Text that is HTML."""


Child = str | None


def tag(name: str, /, *children: Child, **attributes: object) -> Html:
    """An element. `class_` and `for_` mean `class` and `for`; any other `_` in a name means `-`."""
    worn = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _ALONE:
        return Html(f"<{name}{worn}>")
    return Html(f"<{name}{worn}>{join(*children)}</{name}>")


def join(*children: Child) -> Html:
    """The children one after another."""
    return Html("".join(_text(child) for child in children if child is not None))


def _text(child: str) -> str:
    return child if isinstance(child, Html) else escape(child)


def _attribute(key: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{escape(str(value))}"'
