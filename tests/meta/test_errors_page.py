"""docs/errors.md lists exactly the codes that the source raises, with the families it raises them in."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from headrace.cli import main
from headrace.core.errors import ShapeChanged
from setup.assemble_errors import PAGE, TABLE, Entry, entries, page, table
from tests.meta.tracked import SOURCE, calls, nodes, python_files, relative

FAMILIES = ("Definite", "Transient", "Misconfigured")
COMMANDS = [module.__name__.rpartition(".")[2] for module in main.COMMANDS]
_CODE = re.compile(r"[A-Z][A-Z0-9_]*")
# Rebuilds errors that travelled; names no code of its own.
_REBUILDS = SOURCE / "core" / "errors.py"


@cache
def _kinds() -> dict[str, str]:
    """The classes of errors, each with its family: the three, and those that are made from them."""
    bases = {
        node.name: node.bases[0].id
        for path in python_files("src", "testing")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef) and node.bases and isinstance(node.bases[0], ast.Name)
    }
    kinds = {family: family.lower() for family in FAMILIES}
    while more := {name: kinds[base] for name, base in bases.items() if base in kinds and name not in kinds}:
        kinds |= more
    return kinds


@cache
def _raised() -> frozenset[tuple[str, str]]:
    """All codes with the class that each is raised as."""
    kinds = tuple(_kinds())
    return frozenset(
        (code, _class_of(call))
        for path in python_files("src", "testing")
        if path != _REBUILDS
        for call in calls(path, *kinds)
        for code in _codes(call, f"{relative(path)}:{call.lineno}")
    )


def _class_of(call: ast.Call) -> str:
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else ast.unparse(function)


def _codes(call: ast.Call, place: str) -> list[str]:
    """The code that a call names, or both where it chooses; `error.code` is another error's, named there."""
    assert call.args, f"{place}: no literal code"
    first = call.args[0]
    if isinstance(first, ast.Attribute) and first.attr == "code":
        return []
    named = [first.body, first.orelse] if isinstance(first, ast.IfExp) else [first]
    codes = [node.value for node in named if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    assert len(codes) == len(named), f"{place}: no literal code"
    return codes


def _all_raised() -> set[tuple[str, str]]:
    kinds = _kinds()
    # Said before anything of ours can be imported, so not by an exception of ours.
    return {(code, kinds[kind]) for code, kind in _raised()} | {("PYTHON_TOO_OLD", "misconfigured")}


def test_every_code_that_is_raised_is_described_and_no_other() -> None:
    described = {(entry.code, entry.family) for entry in entries()}
    raised = _all_raised()
    missing, idle = sorted(raised - described), sorted(described - raised)
    assert not missing, f"describe these in docs/errors.d/<room>.md: {missing}"
    assert not idle, f"nothing raises these, remove them from docs/errors.d/: {idle}"


def test_codes_are_upper_case_words() -> None:
    assert {code for code, _ in _all_raised() if not _CODE.fullmatch(code)} == set()


def test_a_room_describes_a_code_once_a_family() -> None:
    counted = Counter((entry.code, entry.family, entry.room) for entry in entries())
    assert [key for key, count in counted.items() if count > 1] == []


def test_a_code_is_of_one_family() -> None:
    """Neither the next step nor a command's exit code may depend on who noticed the error."""
    counted = Counter(code for code, _ in _all_raised())
    assert [code for code, count in counted.items() if count > 1] == []


def _conditions() -> dict[str, str]:
    """The codes of conditions, each with the one class that it is raised as."""
    return {
        code: node.name
        for path in python_files("src", "testing")
        for node in nodes(path)
        if isinstance(node, ast.ClassDef)
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "codes"
        for code in ast.literal_eval(line.value)
    }


def test_a_condition_is_raised_as_its_class_wherever_it_is_noticed() -> None:
    """Reactions ask for the class: an error with its code that is of another would be missed."""
    conditions = _conditions()
    assert {pair for pair in _raised() if conditions.get(pair[0], pair[1]) != pair[1]} == set()
    assert conditions.keys() <= {code for code, _ in _raised()}


def test_a_change_of_shape_is_one_still_when_its_record_is_read_again() -> None:
    assert {code for code, kind in _raised() if kind == ShapeChanged.__name__} == set(ShapeChanged.codes)


def _asks_for_a_code(node: ast.Compare) -> bool:
    sides = (node.left, *node.comparators)
    asks = any(isinstance(how, ast.Eq | ast.NotEq | ast.In | ast.NotIn) for how in node.ops)
    return asks and any(isinstance(side, ast.Attribute) and side.attr == "code" for side in sides)


def test_no_code_is_compared() -> None:
    """Codes are for people and tests; what code reacts to is a class."""
    compared = [
        f"{relative(path)}:{node.lineno}"
        for path in python_files("src", "testing")
        if "conformance" not in path.parts  # these are tests
        for node in nodes(path)
        if isinstance(node, ast.Compare)
        and any(
            isinstance(side, ast.Attribute) and side.attr == "code" for side in (node.left, *node.comparators)
        )
        and any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))
    ]
    assert compared == []


def test_the_page_is_in_step_with_its_fragments() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(entries()), "run: make docs"
    assert TABLE.read_text(encoding="utf-8") == table(entries()), "run: make docs"


# A command and what it is told to do; not "the user that runs headrace read and write access".
_COMMAND = re.compile(
    rf"headrace (?:{'|'.join(COMMANDS)})(?: (?:add|drop|resync))?\b(?: --(?:stop|reconcile))?"
)


def commands(call: ast.Call) -> set[str]:
    """The commands of ours that the hint of an error names, as far as it is written where it is raised."""
    hints = [keyword.value for keyword in call.keywords if keyword.arg == "hint"]
    parts = [part.value for hint in hints for part in ast.walk(hint) if isinstance(part, ast.Constant)]
    return {command for part in parts for command in _COMMAND.findall(str(part))}


def test_a_remedy_names_the_commands_of_the_hint() -> None:
    """The page tells whoever searches it for a code to type what the error told them."""
    remedies = {entry.code: entry.remedy for entry in entries()}
    lacking = {
        (code, command)
        for path in python_files("src", "testing")
        if path != _REBUILDS
        for call in calls(path, *_kinds())
        for code in _codes(call, f"{relative(path)}:{call.lineno}")
        for command in commands(call)
        if command not in remedies[code]
    }
    assert lacking == set(), "write what to type into docs/errors.d, then: make docs"


def test_a_command_is_noticed_within_a_hint() -> None:
    text = 'Definite("A", "headrace sql", hint=f"headrace tables resync {name}; headrace reads no more")'
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    assert commands(call) == {"headrace tables resync"}


def test_a_malformed_item_is_refused(tmp_path: Path) -> None:
    (tmp_path / "room.md").write_text("- `CODE` (weather): it rains · take an umbrella\n")
    with pytest.raises(ValueError, match=r"room\.md:1"):
        entries(tmp_path)


def test_a_bar_in_a_description_does_not_break_the_table() -> None:
    assert "a \\| b" in page([Entry("CODE", "definite", "a | b", "c", "room")])
