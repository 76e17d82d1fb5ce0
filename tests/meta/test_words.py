"""What modules are called, what the essay of each room says of them, and how docstrings open.

`participles.txt` names the modules that are still called by a bare participle, a path a line. It may only
shrink.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.meta.tracked import ROOT, files, python_files, relative, tree

ALLOWED = ROOT / "tests" / "meta" / "participles.txt"
ROOMS = [path for path in python_files("src") if path.name == "__init__.py"]
_IRREGULAR = set(
    "begun broken chosen done drawn found given gone heard held kept known laid left lost made met seen shown"
    " spent struck taken told torn unseen untold withdrawn written".split()
)

_RIDDLE = re.compile(r"(?:What|Whether|How|Where|Which|Who|Whose|Why|When|That)\b")


def _is_participle(name: str) -> bool:
    """A past participle and nothing else: `merge_keyed` says what is keyed, `keyed` does not."""
    return name in _IRREGULAR or ("_" not in name and name.endswith("ed"))


def test_no_module_is_called_by_a_bare_participle() -> None:
    found = {relative(path) for path in python_files("src") if _is_participle(path.stem)}
    allowed = set(ALLOWED.read_text(encoding="utf-8").split())
    assert found - allowed == set(), "a module is a noun: name the thing"
    assert allowed - found == set(), "no longer needed: remove from participles.txt"


@pytest.mark.parametrize(
    ("name", "is_one"), [("told", True), ("streamed", True), ("merge_keyed", False), ("seed_sql", False)]
)
def test_a_participle_is_told_from_a_noun(name: str, is_one: bool) -> None:
    assert _is_participle(name) is is_one


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


def riddles(parsed: ast.Module) -> list[str]:
    """The docstrings that say of whom or what they speak only at their end, by their first lines."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    essays = [ast.get_docstring(node) for node in ast.walk(parsed) if isinstance(node, documented)]
    return [essay.splitlines()[0] for essay in essays if essay and _RIDDLE.match(essay)]


@pytest.mark.parametrize("path", python_files("src"), ids=relative)
def test_no_docstring_opens_with_a_riddle(path: Path) -> None:
    assert riddles(tree(path)) == [], "say who does what, in the shortest true sentence"


def test_a_riddle_is_told_from_a_sentence() -> None:
    texts = ("What it is.", "Whether so.", "Whatever it is.", "Tell whether so.", "How: so.")
    functions = [f'def f():\n    """{text}"""' for text in texts]
    assert [len(riddles(ast.parse(text))) for text in functions] == [1, 1, 0, 0, 1]
