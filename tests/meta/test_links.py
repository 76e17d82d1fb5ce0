"""Every relative link in our pages leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT, files, relative

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
PAGES = tuple(path for path in files() if path.suffix == ".md")


def _prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text(encoding="utf-8"))


def _anchors(page: str) -> set[str]:
    """The fragments that a forge makes of the headings: lower case, words joined by hyphens."""
    bare = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(page))
    return {heading.replace(" ", "-") for heading in bare}


def broken_links(path: Path) -> list[str]:
    broken = []
    for target in _LINK.findall(_prose(path)):
        name, _, anchor = target.partition("#")
        if "://" in target or target.startswith("mailto:"):
            continue
        aim = (path.parent / name).resolve() if name else path
        missing = not aim.exists() or not aim.is_relative_to(ROOT)
        if missing or (anchor and anchor not in _anchors(_prose(aim))):
            broken.append(target)
    return broken


@pytest.mark.parametrize("path", PAGES, ids=relative)
def test_every_link_leads_somewhere(path: Path) -> None:
    assert broken_links(path) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A b\n[no file](gone.md) [no heading](#c) [fine](#a-b) [out](https://example.com/)\n")
    assert [target for target in broken_links(page) if target != "#a-b"] == ["gone.md", "#c"]
