"""Makes docs/errors.md, and the table of `headrace explain`, from docs/errors.d/. Run by `make docs`.

A fragment is a markdown list, an item a code:

    - `CODE` (family): what it means · what to do

so that each room describes its own codes beside its own work, and the page that users search is one
alphabetical table. `tests/meta/test_errors_page.py` holds the page against the fragments and the source.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FRAGMENTS = ROOT / "docs" / "errors.d"
PAGE = ROOT / "docs" / "errors.md"
TABLE = ROOT / "src" / "headrace" / "cli" / "errors.tsv"

_ITEM = re.compile(r"- `([A-Z][A-Z0-9_]*)` \((definite|transient|misconfigured)\): (.+?) · (.+)")

_HEAD = """\
# Errors

Every error has a stable code, a family, a primary line, sometimes a detail, and a hint that says what to
type. Search this page for the code. The family says what happens next:

* **definite**: true of the data or of one table. It is recorded in the lake at its position; that table
  stops, the others go on. Exit code 3 where a command can't go on without it.
* **transient**: the world. Headrace backs off and retries; no frontier moves meanwhile. Exit code 4 where a
  command gives up.
* **misconfigured**: a person must act; it stops at once and says what to type. Exit code 2.

What belongs to none of them is a bug, exits with 1 and shows its traceback: please report it.

This page is made by `make docs` from [errors.d](errors.d); edit there.
"""


@dataclass(frozen=True, order=True)
class Entry:
    """One code, as its room describes it."""

    code: str
    family: str
    meaning: str
    remedy: str
    room: str


def entries(folder: Path = FRAGMENTS) -> list[Entry]:
    """All fragments' items in the order of their codes; a line that is no item is an error."""
    found = [entry for path in sorted(folder.glob("*.md")) for entry in _read(path)]
    return sorted(found)


def _read(path: Path) -> list[Entry]:
    found = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = _ITEM.fullmatch(line.strip())
        if match:
            found.append(Entry(match[1], match[2], match[3], match[4], path.stem))
        elif line.startswith("-"):
            raise ValueError(
                f"{path.name}:{number} is not an item of the form: - `CODE` (family): what · remedy"
            )
    return found


def page(found: list[Entry]) -> str:
    rows = [f"| `{e.code}` | {e.family} | {_cell(e.meaning)} | {_cell(e.remedy)} | {e.room} |" for e in found]
    table = ["| code | family | what it means | what to do | room |", "|---|---|---|---|---|", *rows]
    return _HEAD + "\n" + "\n".join(table) + "\n"


def table(found: list[Entry]) -> str:
    """A line a code, as a program reads it; without the marks and links of a page."""
    return "".join(f"{e.code}\t{e.family}\t{_plain(e.meaning)}\t{_plain(e.remedy)}\n" for e in found)


def _plain(text: str) -> str:
    return re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", text).replace("\\|", "|").replace("**", "")


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\|", text)


if __name__ == "__main__":
    PAGE.write_text(page(entries()), encoding="utf-8")
    TABLE.write_text(table(entries()), encoding="utf-8")
