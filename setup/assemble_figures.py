"""Makes docs/figures.md and the table in README.md from the newest results of benches. Run by `make docs`.

`bench/figures.toml` has the rows, `bench/results/` the figures. `tests/meta/test_figures.py` holds the pages.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGE, README = ROOT / "docs" / "figures.md", ROOT / "README.md"
BENCH = ROOT / "bench"
BEGIN, END = "<!-- figures: made by `make docs` -->\n", "<!-- end of figures -->\n"

_HEAD = """\
# Figures

Each is measured beside its peer in one run, on two cores that others use too: the ratios count, not rates.
`python -m bench` repeats them all and writes them to `bench/results/`; `make docs` makes this page of those.
A plus behind a commit says that files differed from it. Results with a note were copied by hand from what
a bench printed.

"""


def rows() -> list[dict[str, Any]]:
    with (BENCH / "figures.toml").open("rb") as file:
        return list(tomllib.load(file)["row"])


def runs() -> list[dict[str, Any]]:
    """All runs that are kept, the newest first."""
    found = [json.loads(path.read_text(encoding="utf-8")) for path in (BENCH / "results").glob("*.json")]
    return sorted(found, key=lambda run: str(run["at"]), reverse=True)


def cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    """A row's what, figure, day and commit, and command, from the newest run that has its figures."""
    how = f"`{row.get('how', 'python -m bench ' + row['bench'])}`"
    for run in runs():
        figures = run["benches"].get(row["bench"], {}).get("figures", {})
        try:
            text = row["text"].format_map(figures)
        except KeyError:
            continue  # a run without this peer
        return row["what"], text, f"{run['at'][:10]}, {run['commit']}", how
    if row.get("awaited"):
        return row["what"], "not measured yet", "", how
    raise ValueError(f'no run in bench/results has the figures of "{row["what"]}"')


def table(titles: tuple[str, ...], found: Sequence[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(line)} |\n" for line in (titles, *found)]
    return "".join([lines[0], "|---" * len(titles) + "|\n", *lines[1:]])


def page() -> str:
    return _HEAD + table(("what", "measured", "when, commit", "how"), [cells(row) for row in rows()])


def readme() -> str:
    """README.md with its table made anew."""
    text = README.read_text(encoding="utf-8")
    head, rest = text.split(BEGIN)
    _, tail = rest.split(END)
    found = [(what, figure, how) for what, figure, _, how in map(cells, filter(_is_in_readme, rows()))]
    return head + BEGIN + table(("what", "measured", "how"), found) + END + tail


def _is_in_readme(row: dict[str, Any]) -> bool:
    return bool(row.get("readme"))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    README.write_text(readme(), encoding="utf-8")
