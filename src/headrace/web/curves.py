"""Curves of the last hour as SVG inside the page: no script, no library, no further request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from headrace.status.watch import SAMPLE_SECONDS, SAMPLES, Sample
from headrace.web.markup import Html, join, tag

_WIDTH, _HEIGHT, _TOP = 300, 56, 4
_GAP_SECONDS = 3.5 * SAMPLE_SECONDS

Point = tuple[float, float]  # seconds since 1970, value


def levels(samples: Sequence[Sample], value: Callable[[Sample], float | None]) -> list[Point]:
    """A point for each sample that has the value."""
    return [(each.at, known) for each in samples if (known := value(each)) is not None]


def rates(points: Sequence[Point]) -> list[Point]:
    """The growth per second between points; none where the sum fell, since it began anew there."""
    return [
        (now, (value - before) / (now - then))
        for (then, before), (now, value) in pairwise(points)
        if now > then and value >= before
    ]


def curve(title: str, points: Sequence[Point], words: Callable[[float], str]) -> Html:
    """A figure: the title, the newest value, the line, the highest value."""
    if len(points) < 2:
        return tag(
            "figure", tag("figcaption", title), tag("p", "no curve yet", class_="quiet"), class_="curve"
        )
    newest, most = points[-1][1], max(value for _, value in points)
    told = f"{title}, last hour: now {words(newest)}, at most {words(most)}"
    lines = [tag("polyline", points=part) for part in _lines(points, most)]
    drawn = tag(
        "svg",
        tag("title", told),
        *lines,
        viewBox=f"0 0 {_WIDTH} {_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=told,
    )
    caption = tag("figcaption", title, " ", tag("b", words(newest)))
    foot = tag("p", f"last hour, at most {words(most)}", class_="quiet")
    return tag("figure", caption, drawn, foot, class_="curve")


def curves(samples: Sequence[Sample], figures: Sequence[Html]) -> Html | None:
    """The curves side by side; None without samples."""
    return tag("div", join(*figures), class_="curves") if samples else None


def _lines(points: Sequence[Point], most: float) -> list[str]:
    """The line in parts, broken where samples are missing."""
    end = points[-1][0]
    begin, parts, before = end - SAMPLES * SAMPLE_SECONDS, [[]], points[0][0]  # type: float, list[list[str]], float
    for at, value in points:
        if at - before > _GAP_SECONDS:
            parts.append([])
        x = _WIDTH * (at - begin) / (end - begin)
        y = _HEIGHT - 1 - (_HEIGHT - _TOP - 1) * (value / most if most else 0)
        parts[-1].append(f"{x:.1f},{y:.1f}")
        before = at
    return [" ".join(part) for part in parts if len(part) > 1]
