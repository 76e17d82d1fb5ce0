"""The files of the checkout and their syntax trees, for the tests of this folder."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "headrace"


@cache
def files() -> tuple[Path, ...]:
    """Every file of the checkout that .gitignore lets through: those tracked, and those about to be.

    Not asked of git, which may be missing where the tests run, or refuse another user's checkout.
    """
    ignored = [".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text().split())]
    return tuple(sorted(_walk(ROOT, ignored)))


def _walk(folder: Path, ignored: list[str]) -> Iterator[Path]:
    for path in folder.iterdir():
        if any(fnmatch(path.name, pattern) for pattern in ignored):
            continue
        if path.is_dir():
            yield from _walk(path, ignored)
        elif path.is_file():
            yield path


def python_files(*folders: str) -> tuple[Path, ...]:
    """Python files, of the given folders of the checkout or of all."""
    wanted = [ROOT / folder for folder in folders] or [ROOT]
    return tuple(
        path
        for path in files()
        if path.suffix == ".py" and any(path.is_relative_to(folder) for folder in wanted)
    )


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of a file's tree. A dozen tests need them, so they are listed once."""
    return tuple(ast.walk(tree(path)))


def calls(path: Path, *names: str) -> Iterator[ast.Call]:
    """Calls of a function of one of these names, bare or as an attribute."""
    for node in nodes(path):
        if isinstance(node, ast.Call) and _called(node.func) in names:
            yield node


def _called(function: ast.expr) -> str | None:
    if isinstance(function, ast.Name):
        return function.id
    return function.attr if isinstance(function, ast.Attribute) else None
