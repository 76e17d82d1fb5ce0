"""Makes docs/demo.svg, the moving picture of the README: runs `headrace demo` and draws its lines.

    .venv/bin/python setup/draw_demo.py

Each line appears after the one before by the time that it took, shortened to a pause of two seconds at most.
A picture alone cannot run a script, so the lines are shown by CSS, once, and then stay.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from html import escape
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs" / "demo.svg"
LONGEST_PAUSE = 2.0
COLUMNS = 100
_LINE, _LETTER, _MARGIN = 18, 7.85, 16


def record() -> list[tuple[float, str]]:
    """The demo's lines, each with the moment at which it came, but for the last: it names a folder."""
    command = [sys.executable, "-m", "headrace", "demo"]
    begun, lines = time.monotonic(), [(0.0, "$ make demo")]
    at_once = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=at_once) as demo:
        assert demo.stdout is not None
        for line in demo.stdout:
            lines.append((time.monotonic() - begun, line.rstrip()))
    if demo.returncode:
        raise SystemExit(demo.returncode)
    while not lines[-1][1] or lines[-1][1].startswith("The lake is at"):
        lines.pop()
    return lines


def drawn(lines: Sequence[tuple[float, str]]) -> str:
    """The picture of these lines."""
    width, height = round(2 * _MARGIN + COLUMNS * _LETTER), 2 * _MARGIN + _LINE * len(lines)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}"'
        ' role="img" font-family="ui-monospace, Menlo, Consolas, monospace" font-size="13">\n'
        "<title>headrace demo: a snapshot under load, a kill -9, and the proof</title>\n"
        "<style>text { fill: #d7dde4; white-space: pre; animation: come .1s both } "
        "@keyframes come { from { opacity: 0 } to { opacity: 1 } } "
        "@media (prefers-reduced-motion: reduce) { text { animation: none } }</style>\n"
        f'<rect width="{width}" height="{height}" rx="8" fill="#14191f"/>\n'
    )
    texts, moment, before = [], 0.0, 0.0
    for number, (came, line) in enumerate(lines):
        moment += min(came - before, LONGEST_PAUSE)
        before = came
        y = _MARGIN + _LINE * number + 13
        if line:
            delay = f"animation-delay: {moment:.2f}s"
            texts.append(f'<text x="{_MARGIN}" y="{y}" style="{delay}">{escape(line)}</text>\n')
    return "".join([head, *texts, "</svg>\n"])


if __name__ == "__main__":
    PICTURE.write_text(drawn(record()), encoding="utf-8")
