"""Builds the site from docs/ into build/site. Run by `make site`.

The pages are Markdown that a forge shows too, so they hold nothing of Sphinx. This script lays a copy of them
beside CHANGELOG.md, CONTRIBUTING.md and the notebooks of examples/, adds the navigation of
docs/navigation.toml and calls Sphinx. Each of its warnings is an error: a dead link, a missing heading, a
page that stands in no door.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = ROOT / "build" / "site"
DECISIONS = "decisions/README"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)((?:#[^)\s]*)?)\)")
_ACCESSIBLE = (
    ('<p class="caption" role="heading">', '<p class="caption" role="heading" aria-level="2">'),
    ("<pre>", '<pre tabindex="0">'),
    ('<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
    ('<aside class="sidebar-drawer">', '<aside class="sidebar-drawer" aria-label="pages">'),
    ('<aside class="toc-drawer">', '<aside class="toc-drawer" aria-label="on this page">'),
)
_MERMAID = re.compile(r"^```mermaid\n.*?^```\n+", re.MULTILINE | re.DOTALL)


def pages() -> dict[Path, str]:
    """Each file that the site has, with its place there."""
    inside = [
        path
        for pattern in ("*.md", "how-to/*.md", "decisions/*.md", "*.svg", "*.png")
        for path in DOCS.glob(pattern)
    ]
    places = {path: path.relative_to(DOCS).as_posix() for path in sorted(inside)}
    notebooks = {path: f"notebooks/{path.stem}.md" for path in sorted((ROOT / "examples").glob("*.ipynb"))}
    beside = {ROOT / "CHANGELOG.md": "changelog.md", ROOT / "CONTRIBUTING.md": "contributing.md"}
    return places | notebooks | beside


def lay_out(target: Path) -> None:
    """Copy everything to `target`, with the navigation, ready for Sphinx."""
    places = pages()
    for path, place in places.items():
        aim = target / place
        aim.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            aim.write_text(on_site(path, places), encoding="utf-8")
        elif path.suffix == ".ipynb":
            _write_notebook(path, aim)
        else:
            shutil.copy(path, aim)
    navigation = tomllib.loads((DOCS / "navigation.toml").read_text(encoding="utf-8"))
    doors = [_toctree(door["name"], door["pages"]) for door in navigation["door"]]
    _append(target / "index.md", doors)
    decisions = sorted(path.stem for path in (DOCS / "decisions").glob("0*.md"))
    _append(target / f"{DECISIONS}.md", [_toctree("", decisions)])


def on_site(path: Path, places: dict[Path, str]) -> str:
    """The text of a page as the site has it. A link that leads out of the site leaves its text alone."""
    folder = Path(places[path]).parent

    def relinked(link: re.Match[str]) -> str:
        sign, text, target, anchor = link.groups()
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        aim = (path.parent / target).resolve()
        if not aim.exists():
            return link[0]  # dead: Sphinx says so
        if aim not in places:
            return text
        return f"{sign}[{text}]({os.path.relpath(places[aim], folder)}{anchor})"

    # A forge draws Mermaid; on the site it would take a script of another host.
    return _LINK.sub(relinked, _MERMAID.sub("", path.read_text(encoding="utf-8")))


def _write_notebook(path: Path, aim: Path) -> None:
    """Write a notebook as a page: its text, its code, and what each cell showed when it was last run."""
    blocks = []
    for number, cell in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(cell["source"])
        blocks.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
        for output in cell.get("outputs", []):
            shown = output.get("data", {"text/plain": output.get("text", [])})
            if "image/png" in shown:
                picture = aim.with_name(f"{aim.stem}-{number}.png")
                picture.write_bytes(base64.b64decode("".join(shown["image/png"])))
                blocks.append(f"![a chart]({picture.name})")
            else:
                blocks.append(f"```text\n{''.join(shown['text/plain'])}\n```")
    aim.write_text("\n\n".join(blocks) + "\n", encoding="utf-8")


def _toctree(caption: str, names: Sequence[str]) -> str:
    captioned = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "```{toctree}", ":hidden:", *captioned, "", *names, "```", ""])


def _append(page: Path, blocks: Sequence[str]) -> None:
    with page.open("a", encoding="utf-8") as file:
        file.writelines(blocks)


def build(site: Path) -> int:
    """Build the site; 0 if Sphinx had nothing to say against it."""
    with tempfile.TemporaryDirectory() as folder:
        lay_out(Path(folder))
        shutil.rmtree(site, ignore_errors=True)
        settings = ["-q", "-W", "--keep-going", "-b", "html", "-c", str(ROOT / "setup" / "site")]
        failed = build_main([*settings, "-d", f"{folder}/.doctrees", folder, str(site)])
    for page in site.rglob("*.html"):
        page.write_text(accessible(page.read_text(encoding="utf-8")), encoding="utf-8")
    return failed


def accessible(page: str) -> str:
    """The page with what Sphinx and the theme leave out for keyboards and screen readers."""
    for found, better in _ACCESSIBLE:
        page = page.replace(found, better)
    return page


if __name__ == "__main__":
    if failed := build(SITE):
        sys.exit(failed)
    sys.stdout.write(f"site: {SITE.relative_to(ROOT)}/index.html\n")
