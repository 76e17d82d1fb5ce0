"""docs/mysql-versions.md lists all that Headrace sends to MySQL and MariaDB and reads there, nothing else.

A new statement, variable, table or event fails here until the page says which releases know it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from headrace.sources.mysql.flavour import OLDEST, TRIED, WORDS
from headrace.sources.mysql.preflight import binlog, hosting, replication
from headrace.sources.mysql.session.connection import NEWER_PINS, PINS, PINS_OF
from headrace.sources.mysql.stream import events
from tests.meta.tracked import ROOT

PAGE = ROOT / "docs" / "mysql-versions.md"
SOURCE = ROOT / "src" / "headrace" / "sources" / "mysql"
VERBS = (
    "ALTER ANALYZE BEGIN CALL CHANGE COMMIT DO EXPLAIN FLUSH GRANT KILL LOCK PURGE RELEASE RESET ROLLBACK "
    "SAVEPOINT SELECT SET SHOW START STOP UNLOCK WITH"
).split()
# Statements, and the expressions that stand in one.
_STATEMENT = re.compile(rf"(?:{'|'.join(VERBS)}) \S|(?:COMMIT|ROLLBACK)\Z|XA RECOVER\Z|.*\bCAST\(|.*\* 1e0")


def _section(title: str) -> str:
    return PAGE.read_text().partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _listed(title: str) -> set[str]:
    """The code spans that begin the lines and the rows of a section."""
    lines = re.findall(r"(?m)^(?:- |\| )(`{1,2})(.+?)\1(?!`)", _section(title))
    return {text.strip() for _, text in lines}


def _is_for_people(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) == "hint"
    return isinstance(node, ast.keyword) and node.arg in ("hint", "detail")


def _is_apart(path: Path) -> bool:
    """Tell whether it sends nothing: `ddl` has words of a grammar, `types/printing.py` speaks to Spark."""
    return path.relative_to(SOURCE).parts[0] == "ddl" or path.name == "printing.py"


@cache
def _texts() -> tuple[str, ...]:
    """The literal texts in MySQL's rooms."""
    rooms = [path for path in sorted(SOURCE.rglob("*.py")) if not _is_apart(path)]
    return tuple(text for path in rooms for text in _texts_of(ast.parse(path.read_text())))


def _texts_of(tree: ast.Module) -> Iterator[str]:
    """The texts of a module, without those for people: docstrings, details and hints."""
    passed = {id(part) for node in ast.walk(tree) if _is_for_people(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if id(node) in passed:
            continue
        if isinstance(node, ast.JoinedStr):
            passed.update(map(id, node.values))
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def _statements() -> set[str]:
    """The statements in the source; a place for a value is "…"."""
    plain = (" ".join(re.sub(r"\{\{?\w+\}\}?|%s", "…", text).split()) for text in _texts())
    return {text for text in plain if _STATEMENT.match(text) and "(?P" not in text}


def _variables() -> set[str]:
    pins = [PINS, *PINS_OF.values(), *(newer for _, newer in NEWER_PINS)]
    lists = [binlog.NAMES, binlog.RETENTION, binlog.POSITIONS, replication.NAMES, hosting.NAMES, *pins]
    named = re.findall(r"@@(?:global|session)\.(\w+)|VARIABLES LIKE '(\w+)'", "\n".join(_texts()))
    words = {words.executed_variable for releases in WORDS.values() for _, words in releases}
    return words.union(*lists, (one or two for one, two in named))


def _tables() -> set[str]:
    return {table for text in _statements() for table in re.findall(r"information_schema\.\w+", text)}


@pytest.mark.parametrize(
    ("title", "used"),
    [("Statements", _statements()), ("Variables", _variables()), ("Tables", _tables())],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_page_lists_what_is_sent_and_read(title: str, used: set[str]) -> None:
    listed = _listed(title)
    assert {"not on the page": used - listed, "not in the source": listed - used} == {
        "not on the page": set(),
        "not in the source": set(),
    }


def test_the_page_lists_the_events() -> None:
    rows = re.findall(r"(?m)^\| (\d+(?: to \d+)?) \|", _section("Events"))
    listed = {
        number
        for first, _, last in (row.partition(" to ") for row in rows)
        for number in range(int(first), int(last or first) + 1)
    }
    assert listed == events.KNOWN


def test_the_page_names_the_releases() -> None:
    page = PAGE.read_text()
    for flavour, tried in TRIED.items():
        assert f"{flavour.label} {OLDEST[flavour]}".removesuffix(".0") in page
        assert [each for each in tried if f"{flavour.label} {each}" not in page] == []
