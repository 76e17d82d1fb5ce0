"""The size budget of the house: small functions, small files, no drawers.

`long-functions.txt` names the functions that may be longer than the limit, one `path:name` a line, and
`large-classes.txt` the classes that may have more methods, alike. They may only shrink: an entry that is no
longer needed fails the test.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT, python_files, relative, tree

LONGEST_FUNCTION = 60
LONGEST_FILE = 699
MOST_METHODS = 15
DRAWERS = {"utils", "util", "common", "helpers", "helper", "base", "misc", "manager", "managers", "tools"}
ALLOWED = ROOT / "tests" / "meta" / "long-functions.txt"
LARGE = ROOT / "tests" / "meta" / "large-classes.txt"

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, _Function]]:
    """Every function with its dotted name; a nested one counts for itself and for its parent."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Function | ast.ClassDef):
            name = f"{prefix}{child.name}"
            if isinstance(child, _Function):
                yield name, child
            yield from _functions(child, f"{name}.")
        else:
            yield from _functions(child, prefix)


def _lines(function: _Function) -> int:
    first = min([function.lineno, *(decorator.lineno for decorator in function.decorator_list)])
    assert function.end_lineno is not None
    return function.end_lineno - first + 1


def too_long(tree_of_file: ast.Module) -> Iterator[tuple[str, int]]:
    for name, function in _functions(tree_of_file):
        if _lines(function) > LONGEST_FUNCTION:
            yield name, _lines(function)


def test_functions_are_short_or_listed_and_the_list_only_shrinks() -> None:
    found = {
        f"{relative(path)}:{name}": lines for path in python_files() for name, lines in too_long(tree(path))
    }
    allowed = set(ALLOWED.read_text(encoding="utf-8").split())
    assert {name: lines for name, lines in found.items() if name not in allowed} == {}
    assert allowed - found.keys() == set(), "no longer needed: remove from long-functions.txt"


def test_a_long_function_is_noticed_wherever_it_hides() -> None:
    body = "\n".join(f"            x = {i}" for i in range(LONGEST_FUNCTION))
    text = f"class A:\n    if True:\n        def f(self):\n{body}\n"
    assert list(too_long(ast.parse(text))) == [("A.f", LONGEST_FUNCTION + 1)]


def test_files_stay_under_the_limit() -> None:
    lengths = {relative(path): len(path.read_bytes().splitlines()) for path in python_files()}
    assert {name: lines for name, lines in lengths.items() if lines > LONGEST_FILE} == {}


def _is_method(node: ast.stmt) -> bool:
    """Tell whether a statement is a method; the language's own, such as `__init__`, do not count."""
    return isinstance(node, _Function) and not (node.name.startswith("__") and node.name.endswith("__"))


def too_many(tree_of_file: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree_of_file):
        if isinstance(node, ast.ClassDef) and (methods := sum(map(_is_method, node.body))) > MOST_METHODS:
            yield node.name, methods


def test_classes_have_few_methods_or_are_listed_and_the_list_only_shrinks() -> None:
    found = {
        f"{relative(path)}:{name}": methods
        for path in python_files("src", "testing")
        for name, methods in too_many(tree(path))
    }
    allowed = set(LARGE.read_text(encoding="utf-8").splitlines())
    assert {name: methods for name, methods in found.items() if name not in allowed} == {}
    assert allowed - found.keys() == set(), "no longer needed: remove from large-classes.txt"


def test_a_property_counts_as_a_method() -> None:
    body = "\n".join(f"    @property\n    def p{i}(self): ..." for i in range(MOST_METHODS))
    assert list(too_many(ast.parse(f"class A:\n{body}\n"))) == []
    assert list(too_many(ast.parse(f"class A:\n{body}\n    def m(self): ...\n"))) == [("A", 16)]


def test_there_are_no_drawers() -> None:
    names = {relative(path): {path.stem, *path.relative_to(ROOT).parent.parts} for path in python_files()}
    assert {path: parts & DRAWERS for path, parts in names.items() if parts & DRAWERS} == {}


@pytest.mark.parametrize("path", python_files("src", "testing"), ids=relative)
def test_every_module_opens_with_an_essay(path: Path) -> None:
    essay = ast.get_docstring(tree(path))
    assert essay, "a module says first what it is for"
    assert "TODO" not in essay


def test_packages_hold_no_logic() -> None:
    """Imports, `__all__` and constants; only what others import has functions, for laziness."""
    found = {
        relative(path): [type(node).__name__ for node in tree(path).body if isinstance(node, _LOGIC)]
        for path in python_files("src", "testing")
        if path.name == "__init__.py" and path.parent.name not in ("headrace", "pyspark_headrace")
    }
    assert {path: nodes for path, nodes in found.items() if nodes} == {}


_LOGIC = (ast.FunctionDef, ast.ClassDef, ast.For, ast.While, ast.With, ast.Try)
