"""The site is built without a warning, and a page of it asks no other host for anything."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from setup.build_site import DOCS, build, on_site, pages
from tests.meta.tracked import ROOT

# What a browser fetches by itself; a link that a reader clicks may lead anywhere.
_FETCHED = re.compile(r"<(?:script|img|link|iframe|source)\b[^>]*?\b(?:src|href)=\"((?:https?:)?//[^\"]+)\"")
_FETCHED_BY_STYLE = re.compile(r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)")


# MyST's own, of Sphinx's next release but one.
pytestmark = pytest.mark.filterwarnings("ignore:.*app' is deprecated")


def test_the_site_has_no_dead_link_and_asks_no_other_host(tmp_path: Path) -> None:
    assert build(tmp_path / "site") == 0
    texts = {
        path: path.read_text("utf-8")
        for path in (tmp_path / "site").rglob("*")
        if path.suffix in {".html", ".css"}
    }
    assert [path.name for path, text in texts.items() if fetched(text)] == []
    assert (tmp_path / "site" / "index.html") in texts


def fetched(text: str) -> list[str]:
    """Find what a page or a style sheet has a browser fetch from another host."""
    return _FETCHED.findall(text) + _FETCHED_BY_STYLE.findall(text)


def test_a_request_to_another_host_is_noticed() -> None:
    assert fetched('<script src="https://cdn.example.com/x.js"></script>') == ["https://cdn.example.com/x.js"]
    assert fetched("@import '//fonts.example.com/a.css'; b { background: url(data:x) }") == [
        "//fonts.example.com/a.css"
    ]
    assert fetched('<a href="https://example.com/">a link</a><img src="page.png">') == []


def test_every_page_stands_in_one_door() -> None:
    navigation = tomllib.loads((DOCS / "navigation.toml").read_text("utf-8"))
    named = [page for door in navigation["door"] for page in door["pages"]]
    there = {place.removesuffix(".md") for place in pages().values() if place.endswith(".md")}
    missing = {page for page in there if not page.startswith("decisions/0")} - {*named, "index"}
    assert missing == set(), "name these in docs/navigation.toml"
    assert [page for page in named if page not in there] == []
    assert len(named) == len(set(named))


def test_a_link_out_of_the_site_leaves_its_text() -> None:
    places = pages()
    assert "](../CONTRIBUTING.md" not in on_site(DOCS / "how-to" / "upgrade.md", places)
    assert "](../changelog.md)" in on_site(DOCS / "how-to" / "upgrade.md", places)
    assert ROOT / "README.md" not in places
