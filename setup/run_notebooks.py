"""Runs the notebooks of examples/ and keeps what each cell shows, as Jupyter would. `make notebooks`.

A cell is plain Python, and the value of its last line is its output unless a semicolon ends it. Running them
so needs no Jupyter, and all of them share one process, so that Spark starts once. Altair's chart is kept as
a picture too where `vl-convert-python` is installed: a forge shows pictures, and draws no chart.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = tuple(sorted((ROOT / "examples").glob("*.ipynb")))


def run(path: Path) -> dict[str, Any]:
    """Run a notebook from its first cell to its last; the notebook with what its cells show."""
    book: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    cells = [cell for cell in book["cells"] if cell["cell_type"] == "code"]
    for number, cell in enumerate(cells, start=1):
        cell["execution_count"] = number
        cell["outputs"] = _run_cell("".join(cell["source"]), f"{path.name}[{number}]", names)
    return book


def _run_cell(source: str, name: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    parts = ast.parse(source, name)
    last = parts.body[-1] if parts.body and not source.rstrip().endswith(";") else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        if isinstance(last, ast.Expr):
            parts.body.pop()
        exec(compile(parts, name, "exec"), names)  # noqa: S102  (cells of our own notebooks)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), name, "eval"), names)  # noqa: S307
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": _lines(printed.getvalue())})
    if value is not None:
        data = {kind: _lines(text) for kind, text in shown(value).items()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    return outputs


def shown(value: Any) -> Mapping[str, str]:
    """A value as a notebook shows it: its text, and a chart as a picture."""
    if hasattr(value, "to_dict") and hasattr(value, "save"):  # a chart of Altair
        return {"text/plain": "(a chart)", **_picture(value)}
    return {"text/plain": repr(value).rstrip()}


def _picture(chart: Any) -> Mapping[str, str]:
    chart.to_dict()  # a chart that Vega would refuse is an error, with or without a picture
    if find_spec("vl_convert") is None:
        return {}
    picture = io.BytesIO()
    chart.save(picture, format="png")
    return {"image/png": base64.b64encode(picture.getvalue()).decode()}


def _lines(text: str) -> Sequence[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for path in NOTEBOOKS:
        sys.stdout.write(f"{path.name}\n")
        path.write_text(json.dumps(run(path), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
