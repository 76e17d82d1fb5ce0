"""The two text formats of metrics: Prometheus' own (0.0.4) and OpenMetrics (1.0.0), which differ little.

    Prometheus      # TYPE headrace_marks_total counter      headrace_marks_total{source="main"} 7
    OpenMetrics     # TYPE headrace_marks counter            headrace_marks_total{source="main"} 7      # EOF

Each family is written once, with all its samples. A label's value may hold any character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_SPECIAL = re.compile(r'[\\"\n]')
_SPELLED = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
_SUFFIXES = {"counter": "_total", "info": "_info"}


@dataclass(frozen=True, slots=True)
class Family:
    """A metric with its samples: name suffix, labels as text, value."""

    name: str  # with Prometheus' suffix: `headrace_marks_total`
    kind: str  # gauge, counter, histogram, info
    help: str
    samples: Sequence[tuple[str, str, float]]


def labels(*pairs: tuple[str, str]) -> str:
    """The labels as text, with values escaped."""
    return ",".join(f'{name}="{_SPECIAL.sub(_spell, value)}"' for name, value in pairs)


def wants_openmetrics(accept: str) -> bool:
    """Tell whether the client prefers OpenMetrics; a client that names no format gets Prometheus' own."""
    weights = {"application/openmetrics-text": 0.0, "text/plain": 0.0}
    for part in accept.split(","):
        kind, *parameters = (piece.strip() for piece in part.lower().split(";"))
        if kind in weights:
            weights[kind] = max(weights[kind], _weight(parameters))
    return weights["application/openmetrics-text"] > weights["text/plain"]


def content_type(openmetrics: bool) -> str:
    if openmetrics:
        return "application/openmetrics-text; version=1.0.0; charset=utf-8"
    return "text/plain; version=0.0.4; charset=utf-8"


def write_text(families: Iterable[Family], *, openmetrics: bool) -> bytes:
    """The families as text."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        name, kind = family.name, family.kind
        if openmetrics:
            name = name.removesuffix(_SUFFIXES.get(kind, ""))
        elif kind == "info":
            kind = "gauge"
        lines += [f"# HELP {name} {_help(family.help)}", f"# TYPE {name} {kind}"]
        for suffix, wearing, value in family.samples:
            where = f"{{{wearing}}}" if wearing else ""
            lines.append(f"{family.name}{suffix}{where} {_number(value)}")
    return "\n".join([*lines, *(["# EOF"] if openmetrics else []), ""]).encode()


def _weight(parameters: Iterable[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value)).replace("inf", "+Inf")


def _help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _spell(match: re.Match[str]) -> str:
    return _SPELLED[match[0]]
