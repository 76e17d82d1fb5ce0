"""docs/architecture.md speaks of what is there: every room has its line, every path leads somewhere.

docs/life-of-a-run.md and docs/add-a-type.md answer each question by at most four files, and name what is in
them.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.meta.tracked import ROOT, SOURCE, files, python_files, tree

PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_PATH = re.compile(r"`((?:[\w.-]+/)+[\w.-]*)`")


def _rooms() -> list[str]:
    inside = (path.relative_to(SOURCE) for path in files() if path.is_relative_to(SOURCE))
    return sorted({path.parts[0] for path in inside if len(path.parts) > 1})


@pytest.mark.parametrize("room", _rooms())
def test_every_room_has_its_line(room: str) -> None:
    assert re.search(rf"(?m)^\| `{room}/` \|", PAGE)


@pytest.mark.parametrize("name", sorted(set(_PATH.findall(PAGE))))
def test_every_path_on_the_page_is_there(name: str) -> None:
    assert (ROOT / name).exists() or (SOURCE / name).exists()


LIFE = (ROOT / "docs" / "life-of-a-run.md").read_text(encoding="utf-8")
TYPE = (ROOT / "docs" / "add-a-type.md").read_text(encoding="utf-8")
MOST_FILES = 4
_QUESTION = re.compile(r"^## ([^\n]*\?)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ANSWER = re.compile(r"^\* `([\w./]+\.py)`: (.*?)(?=^\* |\Z)", re.MULTILINE | re.DOTALL)
_NAMED = re.compile(r"`((?:[A-Z]\w*\.)?_?[A-Za-z]\w*)`")


@pytest.mark.parametrize(("question", "answer"), _QUESTION.findall(LIFE) + _QUESTION.findall(TYPE)[:-1])
def test_a_question_is_answered_by_few_files_that_hold_what_is_named(question: str, answer: str) -> None:
    files_named = _ANSWER.findall(answer)
    assert 0 < len(files_named) <= MOST_FILES, question
    for path, text in files_named:
        there = set(_definitions(tree(SOURCE / path)))
        names = _NAMED.findall(text)
        assert names, f"{path}: say what to look at"
        assert [name for name in names if name not in there] == [], path


def test_the_life_of_a_run_has_its_questions() -> None:
    assert len(_QUESTION.findall(LIFE)) >= 8
    assert all(heading in dict(_QUESTION.findall(LIFE)) for heading in re.findall(r"(?m)^## (.*)$", LIFE))


def test_a_type_is_tried_where_the_page_says() -> None:
    *others, (question, answer) = _QUESTION.findall(TYPE)
    assert (len(others), question) == (3, "Where is it tried?")
    assert [name for name in _PATH.findall(answer) if not (ROOT / name).exists()] == []
    assert len(_PATH.findall(answer)) == 3


def _definitions(parsed: ast.Module) -> Iterator[str]:
    """The constants, functions and classes of a module, and its methods, alone and as `Class.method`."""
    for node in parsed.body:
        if isinstance(node, ast.Assign):
            yield from (ast.unparse(target) for target in node.targets)
        if isinstance(node, ast.AnnAssign):
            yield ast.unparse(node.target)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield from (each.name, f"{node.name}.{each.name}")


def test_what_is_asked_of_postgresql_fails_with_a_code() -> None:
    """`statements` makes a coded error of what the driver raises, at COMMIT as well."""
    raw = re.compile(
        r"(?:connection|session)\.(?:execute|transaction|commit|rollback)\(|\.exec_\(|\.exec_params\("
    )
    rooms = [SOURCE / "sources" / room for room in ("postgres", "queue")]
    asking = {
        path.name
        for path in python_files()
        if any(path.is_relative_to(room) for room in rooms) and raw.search(path.read_text(encoding="utf-8"))
    }
    assert asking == {"statements.py"}


def test_nobody_waits_for_a_server_with_pythons_lock_held() -> None:
    """Then no other thread goes on, and not the one either that ends what lasts too long (`timeouts`)."""
    held = re.compile(r"PGconn\.connect\(|get_copy_data\(0\)|get_cancel\(|get_result\(")
    rooms = [SOURCE / "sources" / room for room in ("postgres", "queue")]
    waiting = {
        (path.name, call)
        for path in python_files()
        if any(path.is_relative_to(room) for room in rooms)
        for call in held.findall(path.read_text(encoding="utf-8"))
    }
    # The result is there by then; where there is no other way, the older libpq's.
    assert waiting == {("statements.py", "get_result("), ("timeouts.py", "get_cancel(")}
