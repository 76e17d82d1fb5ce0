"""Code above the contract of a source does not speak the language of one.

If a word of PostgreSQL or MySQL stands in code above `sources`, a second source would have to be asked for
there as well, and so would whoever reads its code in an error. Docstrings and comments may explain with
examples.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.meta.tracked import SOURCE, python_files, relative, tree

BELOW = (
    "core",
    "decode",
    "sources",
    "demo.py",
    "demo_scenes.py",
)  # the algebra, the sources themselves, the demo's servers
WORD = re.compile(
    r"(?<![a-z])(?:lsns?|xids?|slots?|publications?|pg|pgoutput|ctid|psycopg|postgres"
    r"|gtids?|binlogs?|mysql|pymysql|mariadb)(?![a-z])|^my (?=[a-z])"
)


def words(parsed: ast.Module) -> Counter[str]:
    """The words of one source in the names and texts of a module."""
    explained = {id(text) for text in _docstrings(parsed)}
    found: Counter[str] = Counter()
    for node in ast.walk(parsed):
        if id(node) not in explained:
            for text in _texts(node):
                found.update(WORD.findall(_apart(text)))
    return found


def _docstrings(parsed: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(parsed):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _texts(node: ast.AST) -> list[str]:
    """The texts of a node: a name, an attribute, an argument, a text; of imports the layers tell."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [] if name == "__slots__" else [name]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.keyword(arg="slots"):
            return []  # of a dataclass
        case ast.keyword(arg=str(name)):
            return [name]
        case ast.Constant(value=str(text)):
            return [text]
    return []


def _apart(text: str) -> str:
    """The words of a name in lower case, apart: `slot_state`, `SlotState` and `PG_SLOT` all say "slot"."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()


def above() -> dict[str, Counter[str]]:
    """Find such words in each file above the contract."""
    files = (path for path in python_files("src") if path.is_relative_to(SOURCE) and not _below(path))
    found = {relative(path): words(tree(path)) for path in files}
    return {name: each for name, each in found.items() if each}


def _below(path: Path) -> bool:
    return not {path.relative_to(SOURCE).parts[0], path.name}.isdisjoint(BELOW)


def test_no_word_of_one_source_stands_above_the_contract() -> None:
    assert above() == {}, "a word of one source above the contract: let `sources` say it"


def test_a_word_is_noticed_wherever_it_hides() -> None:
    text = '''
"""It may tell of an LSN."""
from a.postgres import Slot
def slot_of(xid: int) -> str:
    """A slot."""
    return f"{xid} in PG_SLOT" + other.publication  # lsn
sloth = dataclass(slots=True, gtid=1)
'''
    assert words(ast.parse(text)) == Counter(slot=2, xid=2, pg=1, publication=1, gtid=1)
