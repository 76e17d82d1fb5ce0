"""A file is a whole thought: a small module that one other alone imports is a part of that one.

`small-modules.txt` lists those that stand by themselves all the same, each with its reason:
`module  reason`, one a line. The list may only shrink, and holds at most `MOST`.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.meta.tracked import ROOT, SOURCE, python_files, tree

LISTED = ROOT / "tests" / "meta" / "small-modules.txt"
SMALL = 80  # lines
MOST = 25


def _name(path: Path) -> str:
    inside = path.relative_to(SOURCE.parent).with_suffix("")
    return ".".join(inside.parts[:-1] if path.name == "__init__.py" else inside.parts)


def imported_modules(parsed: ast.Module, modules: frozenset[str]) -> Iterator[str]:
    """The modules of ours that a module imports, wherever in it, for type checkers alone, too."""
    for node in ast.walk(parsed):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


@cache
def _importers() -> dict[str, set[str]]:
    """The importers of each module of the product."""
    by_name = {_name(path): path for path in python_files("src") if "testing" not in path.parts}
    importers: dict[str, set[str]] = defaultdict(set)
    for name, path in by_name.items():
        for imported in imported_modules(tree(path), frozenset(by_name)):
            importers[imported].add(name)
    return importers


def _small_modules() -> set[str]:
    return {
        _name(path)
        for path in python_files("src")
        if "testing" not in path.parts
        and path.name != "__init__.py"
        and len(path.read_bytes().splitlines()) < SMALL
        and len(_importers()[_name(path)]) == 1
    }


def _reasons() -> dict[str, str]:
    lines = LISTED.read_text(encoding="utf-8").splitlines()
    return {name: reason.strip() for name, _, reason in (line.partition(" ") for line in lines)}


def test_a_small_module_of_one_importer_is_listed_and_the_list_only_shrinks() -> None:
    small, reasons = _small_modules(), _reasons()
    assert small - reasons.keys() == set(), "merge it into the module that imports it"
    assert reasons.keys() - small == set(), "no longer needed: remove from small-modules.txt"
    assert len(reasons) <= MOST


def test_each_of_them_has_its_reason() -> None:
    assert [name for name, reason in _reasons().items() if len(reason.split()) < 3] == []


def test_an_import_of_a_module_is_told_from_one_of_a_name() -> None:
    modules = frozenset({"a", "a.b", "a.c"})
    text = "import a.c\nfrom a import b\ndef f():\n    from a.c import x\n"
    assert list(imported_modules(ast.parse(text), modules)) == ["a.c", "a.b", "a.c"]
