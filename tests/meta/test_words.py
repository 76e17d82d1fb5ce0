"""Names and docstrings: nouns for things, verbs for functions, sentences that a tired reader understands."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.meta.tracked import files, nodes, python_files, relative, tree

ROOMS = [path for path in python_files("src", "testing") if path.name == "__init__.py"]
PRODUCT = list(python_files("src"))
_IRREGULAR = set(
    """begun broken brought chosen done drawn found given gone got grown heard held hidden kept known laid led
    left lost made meant met owed said seen sent shown spent struck taken told torn unseen untold withdrawn
    worn written""".split()
)
# Nouns, and verbs whose participle is the same; `Misconfigured` is the name of an error family.
_OTHERWISE = set("bound embed feed kind misconfigured need seed speed thread".split())

_RIDDLE = re.compile(
    r"(?:What|Whether|How|Where|Which|Who|Whose|Why|When|That|Those|As|Nor|Of|The same|Such)\b(?!:)"
)


def _is_participle(name: str) -> bool:
    """A past participle and nothing else: `merge_keyed` says what is keyed, `keyed` does not."""
    plain = re.sub(r"(?<!^)(?=[A-Z])", "_", name.strip("_")).lower()
    if "_" in plain or plain in _OTHERWISE or name.startswith("__"):
        return False
    return plain in _IRREGULAR or (plain.endswith("ed") and len(plain) > 4)


def _names(parsed: Iterable[ast.AST]) -> Iterator[str]:
    """The functions, classes and fields of a module, and the parameters of its public functions."""
    for node in parsed:
        if isinstance(node, ast.ClassDef):
            yield node.name
            for each in node.body:
                if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
                    yield f"{node.name}.{each.target.id}"
        elif isinstance(node, ast.FunctionDef):
            yield node.name
            if not node.name.startswith("_"):
                arguments = node.args
                for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                    yield f"{node.name}.{argument.arg}"


def test_no_module_is_called_by_a_bare_participle() -> None:
    assert [relative(path) for path in python_files("src", "testing") if _is_participle(path.stem)] == []


def test_no_name_is_a_bare_participle() -> None:
    bare = {
        f"{relative(path)}:{name}"
        for path in PRODUCT
        for name in _names(nodes(path))
        if _is_participle(name.rpartition(".")[2])
    }
    assert bare == set(), "a thing is a noun, a function a verb; a field says apart what it is on disk"


@pytest.mark.parametrize(
    ("name", "is_one"),
    [("told", True), ("streamed", True), ("Folded", True), ("_kept", True), ("merge_keyed", False)],
)
def test_a_participle_is_told_from_a_noun(name: str, is_one: bool) -> None:
    assert _is_participle(name) is is_one


def test_a_public_class_name_has_one_definition() -> None:
    homes = defaultdict(list)
    for path in PRODUCT:
        for node in nodes(path):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(relative(path))
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert twice == {}, "one of them needs a name of its own, or both a room below"


def _modules(room: Path) -> list[str]:
    """The modules of a room, and the rooms within."""
    inside = [path.relative_to(room.parent).parts for path in files() if path.is_relative_to(room.parent)]
    flat = {parts[0].removesuffix(".py") for parts in inside if len(parts) == 1 and parts[0].endswith(".py")}
    deep = {parts[0] for parts in inside if len(parts) == 2 and parts[1] == "__init__.py"}
    return sorted((flat | deep) - {"__init__", "__main__"})


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: relative(room.parent))
def test_the_essay_of_a_room_names_what_is_in_it(room: Path) -> None:
    essay = ast.get_docstring(tree(room)) or ""
    unnamed = [name for name in _modules(room) if not re.search(rf"(?<!\w){name}(?!\w)", essay)]
    assert not unnamed, f"{relative(room)} says what is in the room: these, too"


def riddles(parsed: Iterable[ast.AST]) -> list[str]:
    """The docstrings that name their subject only at the end, or point at another, by their first lines."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    essays = [ast.get_docstring(node) for node in parsed if isinstance(node, documented)]
    return [essay.splitlines()[0] for essay in essays if essay and _RIDDLE.match(essay)]


@pytest.mark.parametrize("path", python_files("src", "testing", "tests", "bench", "setup"), ids=relative)
def test_no_docstring_opens_with_a_riddle(path: Path) -> None:
    assert riddles(nodes(path)) == [], "say who does what, in the shortest true sentence"


def test_a_riddle_is_told_from_a_sentence() -> None:
    texts = (
        "What it is.",
        "Whether so.",
        "The same of it.",
        "Whatever it is.",
        "Tell whether so.",
        "Also so.",
    )
    functions = [f'def f():\n    """{text}"""' for text in texts]
    assert [len(riddles(ast.walk(ast.parse(text)))) for text in functions] == [1, 1, 1, 0, 0, 0]


def test_no_docstring_says_who_calls() -> None:
    """Imports know who calls, and a sentence about it is the first to become untrue."""
    saying = [
        relative(path)
        for path in python_files("src", "testing")
        for node in nodes(path)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and "Called by" in (ast.get_docstring(node) or "")
    ]
    assert saying == []


_MEMBER = re.compile(r"`(?:[a-z_]+\.)*([A-Z]\w*[a-z]\w*)\.(\w+)(?:\([^`]*)?`")


@pytest.fixture(scope="module")
def members() -> dict[str, set[str]]:
    """The names that the definition of each class has in it."""
    inside: dict[str, set[str]] = defaultdict(set)
    for path in python_files("src", "testing"):
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                inside[node.name] |= set(_own_names(node))
    return inside


def _own_names(node: ast.ClassDef) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.FunctionDef):
            yield each.name
        elif isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.Name):
            yield each.id


def unknown_members(essay: str, inside: dict[str, set[str]]) -> list[str]:
    """The members that an essay names as `Class.member`, and that no class has."""
    named = _MEMBER.findall(essay)
    return [f"{name}.{each}" for name, each in named if name not in inside or each not in inside[name]]


@pytest.mark.parametrize("path", python_files("src", "testing"), ids=relative)
def test_a_docstring_names_members_that_are_there(path: Path, members: dict[str, set[str]]) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    essays = [ast.get_docstring(node) or "" for node in nodes(path) if isinstance(node, documented)]
    assert [each for essay in essays for each in unknown_members(essay, members)] == []


def test_a_member_that_was_renamed_is_found() -> None:
    inside = {"Lake": {"at"}}
    assert unknown_members("`Lake.at` and `read.Lake.cut(epoch)`, `Pond.at`", inside) == [
        "Lake.cut",
        "Pond.at",
    ]
