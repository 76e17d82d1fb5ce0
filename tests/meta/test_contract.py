"""The contract of a source stays small, none of its methods does nothing, and a mirror is bound once.

A member that a source has to write costs each further source, so their number has a bar. A capability that
some sources lack has a default in the contract, mostly None: who inherits writes nothing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.meta.tracked import SOURCE, nodes, python_files, relative, tree

CONTRACT = SOURCE / "sources" / "contract"
MOST_MEMBERS = 75
MOST_REQUIRED = 53
SOURCES = ("postgres", "mysql", "queue")


def protocols() -> Iterator[ast.ClassDef]:
    """The protocols of the contract."""
    for path in sorted(CONTRACT.glob("*.py")):
        for node in tree(path).body:
            if isinstance(node, ast.ClassDef) and any("Protocol" in ast.unparse(each) for each in node.bases):
                yield node


def members(protocol: ast.ClassDef) -> list[str]:
    """The members of a protocol, those that Python itself asks for left out."""
    named = [node.name for node in protocol.body if isinstance(node, ast.FunctionDef)]
    named += [ast.unparse(node.target) for node in protocol.body if isinstance(node, ast.AnnAssign)]
    return [name for name in named if not name.startswith("_")]


def required(protocol: ast.ClassDef) -> list[str]:
    """The members that have no default: their body is a docstring."""
    functions = (node for node in protocol.body if isinstance(node, ast.FunctionDef))
    return [each.name for each in functions if all(map(_is_text, each.body))]


def idle(function: ast.FunctionDef) -> bool:
    """Tell whether a method does nothing: it says nothing, a constant, or one of its arguments."""
    body = [node for node in function.body if not _is_text(node)]
    if not body:
        return True
    match body:
        case [ast.Pass()]:
            return True
        case [ast.Return(value=value)]:
            return value is None or _is_constant(value, {argument.arg for argument in function.args.args})
    return False


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_constant(value: ast.expr, arguments: set[str]) -> bool:
    match value:
        case ast.Constant() | ast.List(elts=[]) | ast.Tuple(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Name(id=name):
            return name in arguments - {"self"}
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name in {"frozenset", "set", "dict", "list", "tuple"}
    return False


def test_the_contract_has_no_more_members_than_its_bar() -> None:
    counted = {protocol.name: len(members(protocol)) for protocol in protocols()}
    assert sum(counted.values()) <= MOST_MEMBERS, counted


def test_a_source_has_to_write_no_more_members_than_the_bar() -> None:
    counted = {protocol.name: len(required(protocol)) for protocol in protocols()}
    assert sum(counted.values()) <= MOST_REQUIRED, counted


@pytest.mark.parametrize("source", SOURCES)
def test_no_member_of_the_contract_does_nothing(source: str) -> None:
    asked = {protocol.name: set(members(protocol)) for protocol in protocols()}
    classes = [
        (path, node)
        for path in python_files("src")
        if path.is_relative_to(SOURCE / "sources" / source)
        for node in tree(path).body
        if isinstance(node, ast.ClassDef)
    ]
    implemented = {node.name: [p for p in asked if asked[p] <= _named(node)] for _, node in classes}
    assert {"Source", "Connection", "Mirror", "Decoder", "Stream"} <= {
        p for each in implemented.values() for p in each
    }
    found = [
        f"{relative(path)}: {node.name}.{method.name}"
        for path, node in classes
        for method in node.body
        if isinstance(method, ast.FunctionDef) and idle(method)
        if any(method.name in asked[protocol] for protocol in implemented[node.name])
    ]
    assert not found, "make it a capability that is None where a source lacks it"


def _named(node: ast.ClassDef) -> set[str]:
    methods = {each.name for each in node.body if isinstance(each, ast.FunctionDef)}
    return methods | {ast.unparse(each.target) for each in node.body if isinstance(each, ast.AnnAssign)}


def test_nobody_above_the_sources_hands_a_record_of_upstream_objects_on() -> None:
    """A mirror is bound to it once; only who plans or removes objects without a connection has it apart."""
    allowed = {"src/headrace/pipeline/commands/drop_source.py: _drop"}
    found = {
        f"{relative(path)}: {node.name}"
        for path in python_files("src")
        if path.is_relative_to(SOURCE) and path.relative_to(SOURCE).parts[0] not in ("sources", "testing")
        for node in nodes(path)
        if isinstance(node, ast.FunctionDef)
        and any(_is_record(argument) for argument in (*node.args.args, *node.args.kwonlyargs))
    }
    assert found == allowed


def _is_record(argument: ast.arg) -> bool:
    said = None if argument.annotation is None else ast.unparse(argument.annotation)
    return argument.arg == "upstream" and said in (None, "Json")


def test_idle_methods_are_told_from_others() -> None:
    text = """
def a(self): pass
def b(self): "It waits for nobody."
def c(self, x): return x
def d(self): return frozenset()
def e(self): return self.x
def f(self): return call(1)
"""
    told = {node.name: idle(node) for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}
    assert told == {"a": True, "b": True, "c": True, "d": True, "e": False, "f": False}
