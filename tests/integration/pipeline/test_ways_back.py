"""Every table that stopped has a way back, and its hint is that way: it is typed here as it stands.

A statement is run at the source as the tables' owner, a command of ours on the lake. Only where nobody can
know more (`ASK_FIRST`) does the command refuse, and has a hint as well, which is typed next.
"""

from __future__ import annotations

import re
import shlex

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.core.errors import HeadraceError
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.pipeline.commands import ask
from headrace.pipeline.state.records import tables_of
from headrace.pipeline.state.table_state import State
from headrace_testing import validators
from tests.integration.pipeline.conftest import Mirrors
from tests.places import place_at

pytestmark = pytest.mark.server

# What is done to a table that stops it, and the code that it stops with.
FATES = {
    "wider": ("ALTER TABLE wider ALTER COLUMN s TYPE bigint USING length(s)", "TABLE_CHANGED"),
    "longer": ("ALTER TABLE longer ADD COLUMN more text DEFAULT 'new'", "TABLE_CHANGED"),
    "emptied": ("DELETE FROM emptied; ALTER TABLE emptied DROP COLUMN s", "TABLE_CHANGED"),
    "moved": ("ALTER TABLE moved RENAME TO elsewhere", "TABLE_CHANGED"),
    "gone": ("DROP TABLE gone", "TABLE_CHANGED"),
    "again": (
        "DROP TABLE again; CREATE TABLE again (id int PRIMARY KEY, s text); INSERT INTO again VALUES (7)",
        "TABLE_CHANGED",
    ),
    "keyless": ("ALTER TABLE keyless DROP CONSTRAINT keyless_pkey", "TABLE_CHANGED"),
    "entire": ("ALTER TABLE entire REPLICA IDENTITY FULL", "TABLE_CHANGED"),
    "filtered": ("{alter} DROP TABLE filtered; {alter} ADD TABLE filtered WHERE (id < 5)", "TABLE_CHANGED"),
    "endless": ("INSERT INTO endless VALUES ('infinity')", "KEY_WITHOUT_LAKE_FORM"),
    "foreign": ("SELECT 1", "LAKE_FOREIGN_COMMIT"),
}
# What a hint says in words and leaves to a person to write down.
BY_HAND = {"endless": "DELETE FROM endless WHERE id = 'infinity'"}
# It may be made again any moment: "resync" says what to do if it was not.
ASK_FIRST = {"gone"}


@pytest.fixture
def mirrors(mirrors: Mirrors) -> Mirrors:
    for name in [*FATES, "sound"]:
        kind = "date" if name == "endless" else "int"
        mirrors.database.execute(f'CREATE TABLE "{name}" (id {kind} PRIMARY KEY, s text)', user="app")
    rows = "INSERT INTO {0} SELECT i, 'row ' || i FROM generate_series(1, 9) i"
    for name in sorted(FATES.keys() - {"endless"}):
        mirrors.database.execute(rows.format(f'"{name}"'), user="app")
    return mirrors


def test_every_hint_of_a_table_that_stopped_brings_it_back(mirrors: Mirrors) -> None:
    database, last = mirrors.database, mirrors.once().marks()[-1]
    before = {name: mirrors.lake.at().arrow(name) for name in last.versions}
    _change_something(mirrors)  # so that there is a history of each
    [(publication,)] = database.execute("SELECT pubname FROM pg_publication")
    for statement, _ in FATES.values():
        database.execute(statement.format(alter=f"ALTER PUBLICATION {publication}"), user="app")
    _commit_as_another_program(mirrors, "foreign")
    mirrors.options["on_ddl"] = "stop"
    with pytest.raises(HeadraceError):
        mirrors.once()
    records = tables_of(mirrors.lake.catalog())
    stopped = {name.name: r.error for name, r in records.items() if r.state is State.STOPPED}
    assert {name: error.code for name, error in stopped.items() if error is not None} == {
        name: code for name, (_, code) in FATES.items()
    }
    refused = {name for name, error in stopped.items() if error is None or _follow(mirrors, name, error)}
    assert refused == ASK_FIRST
    _change_something(mirrors)
    _change_something(mirrors)
    lake = mirrors.lake
    back = {*FATES, "sound", "elsewhere"} - {"gone", "moved"}
    assert set(lake.marks()[-1].versions) == {str(TableName("public", name)) for name in back}
    assert validators.exact(lake, database.url()) == []
    same = ["public.entire", "public.again", "public.sound", "public.keyless"]
    assert validators.consistent(lake, tables=same) == []
    for name, rows in before.items():  # a table under other columns, too, is what it was
        assert lake.at(epoch=last.epoch).arrow(name) == rows
        assert lake.at(position=place_at(last.time + 2)).arrow(name) == rows
    for name in ("wider", "longer"):  # and is followed under the new ones, with a history of its own
        since = mirrors.record(f"public.{name}").since
        assert since is not None
        assert (lake.at().arrow(f"public.{name}").num_rows, since > last.time) == (6, True)
        assert lake.at(position=place_at(since)).arrow(f"public.{name}").num_rows == 7
        histories = (mirrors.path / "history" / "main" / "public" / name).iterdir()
        assert sorted(folder.name for folder in histories) == ["1", "2"]


def _change_something(mirrors: Mirrors) -> None:
    for name in ("wider", "longer", "entire", "sound"):
        mirrors.database.execute(
            f'DELETE FROM "{name}" WHERE id = (SELECT min(id) FROM "{name}")', user="app"
        )
    mirrors.database.execute("INSERT INTO sound VALUES (coalesce((SELECT max(id) FROM sound), 0) + 1)")
    mirrors.once()


def _commit_as_another_program(mirrors: Mirrors, name: str) -> None:
    folder = mirrors.path / layout.table_folder("main", TableName("public", name))
    rows = mirrors.lake.at().arrow(f"public.{name}").slice(0, 1)
    write_deltalake(str(folder), pa.table(rows), mode="append")


def _follow(mirrors: Mirrors, name: str, error: HeadraceError, left: int = 2) -> bool:
    """Type what the hint says, and if it is refused, what the next hint says. Tell whether it was refused."""
    typed = re.findall(r"headrace tables \w+(?: [^\s,;:]+)?|ALTER [^,;]+", error.hint)
    assert typed, f"{name}: {error.code} hints nothing that can be typed: {error.hint}"
    assert left, f"{name}: the hints lead nowhere: {error}"
    if name in BY_HAND:
        mirrors.database.execute(BY_HAND[name], user="app")
    try:
        for line in typed:
            _type(mirrors, name, line)
    except HeadraceError as refused:
        _follow(mirrors, name, refused, left - 1)
        return True
    return False


def _type(mirrors: Mirrors, name: str, line: str) -> None:
    if not line.startswith("headrace "):
        mirrors.database.execute(line, user="app")
        return
    _, _, action, *tables = shlex.split(line.replace('"', '\\"'))
    kind = "resync" if action == "resync" else f"tables.{action}"
    arguments = {"tables": tables or [f"public.{name}"]}
    ask.ask(str(mirrors.path), kind, arguments, url=mirrors.database.url(user="app"))
