"""Columns that must not leave: no value of theirs is in the lake, whatever becomes of the table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest

from headrace.core.errors import HeadraceError
from headrace.core.hashing import HashKey
from headrace_testing.conformance.mirror import Mirror, mirror_of
from headrace_testing.conformance.place import SourceUnderTest, execute
from tests.conformance.sources import RELEASES, SOURCES

pytestmark = pytest.mark.server

CANARY = "canary-77ab01"
KEY = HashKey("5f0c6a1d9e3b47c2" * 4)
SHOWN = "shown-55cd02"  # where the search must find something
ROWS = 300
TABLE = "CREATE TABLE users (id int PRIMARY KEY, email varchar(60), ssn varchar(60), number int)"
EXCLUDE, ONLY = {"exclude": ["ssn", "number"]}, {"only": ["id", "email"]}
ONLY_OTHERS = {"exclude": ["secret"]}
CHUNKS = {"handoff": "chunks", "chunk_bytes": 4_000}


def _insert(first: int, last: int) -> str:
    rows = ", ".join(f"({n}, '{SHOWN}{n}', '{CANARY}{n}', {n})" for n in range(first, last))
    return f"INSERT INTO users (id, email, ssn, number) VALUES {rows}"


# A row of the queue is a text that does not name its columns: it refuses the option.
@pytest.fixture(
    scope="module",
    params=[
        *(each for each in SOURCES if each.kind != "queue"),
        *(pytest.param(each, marks=pytest.mark.full) for each in RELEASES),
    ],
    ids=lambda each: each.kind,
)
def source(request: pytest.FixtureRequest) -> SourceUnderTest:
    """Each source that can leave columns out."""
    found: SourceUnderTest = request.param
    return found


@pytest.fixture
def users(mirror: Mirror) -> Mirror:
    """A table with columns that must not leave."""
    execute(mirror.place, TABLE, _insert(1, ROWS))
    return mirror


@pytest.fixture(autouse=True)
def hash_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key of hashes, as a run finds it."""
    monkeypatch.setenv("HEADRACE_HASH_KEY", KEY.text)


def _columns(mirror: Mirror, rule: dict[str, Any], table: str = "users") -> dict[str, Any]:
    return {"columns": {str(mirror.place.table(table)): rule}}


def _texts(path: Path) -> str:
    """The contents of a file, those of Parquet unpacked."""
    if path.suffix == ".parquet":
        return str(pq.ParquetFile(path).read().to_pylist())
    return path.read_bytes().decode("latin-1")


def _holding(root: Path, needle: str) -> list[str]:
    files = sorted(each for each in root.rglob("*") if each.is_file())
    return [str(each.relative_to(root)) for each in files if needle in _texts(each)]


def _names(mirror: Mirror) -> list[str]:
    table = mirror.lake.at().polars(str(mirror.place.table("users")))
    return table.collect_schema().names()


@pytest.mark.parametrize(
    ("rule", "how"),
    [
        pytest.param(EXCLUDE, {}, id="exclude"),
        pytest.param(ONLY, CHUNKS, id="only-chunks", marks=pytest.mark.full),
    ],
)
def test_what_is_left_out_is_nowhere(users: Mirror, rule: dict[str, Any], how: dict[str, Any]) -> None:
    """By snapshot, stream, DDL and resync; a column that comes later stays out, too."""
    place, options = users.place, {**_columns(users, rule), **how}
    users.once(**options)
    assert _names(users) == ["id", "email"]
    execute(
        place,
        f"UPDATE users SET ssn = '{CANARY}-u', number = -1, email = 'b' WHERE id < 100",
        f"UPDATE users SET ssn = '{CANARY}-v' WHERE id = 200",
        "UPDATE users SET ssn = NULL WHERE id = 201",
        "DELETE FROM users WHERE id > 250",
        _insert(1000, 1010),
    )
    users.once(**options)
    execute(place, f"ALTER TABLE users ADD COLUMN more varchar(60) DEFAULT '{CANARY}-m'")
    execute(place, f"INSERT INTO users VALUES (2000, '{SHOWN}', '{CANARY}', 1, '{CANARY}')")
    users.once(**options)
    assert bool(_holding(users.path / "_headrace", "COLUMNS_LATER")) == ("exclude" in rule)
    assert users.verify() == {str(place.table("users")): "equal"}
    execute(place, "ALTER TABLE users ADD COLUMN last int, DROP COLUMN ssn")
    users.once(**options)
    users.ask("resync", "users")
    lake = users.once(**options)
    assert _names(users) == ["id", "email"]
    assert users.verify() == {str(place.table("users")): "equal"}
    contents = lake.at().polars(str(place.table("users"))).collect()
    assert (len(contents), contents["email"].n_unique()) == (250 + 11, 162 + 1)
    first = next(mark for mark in lake.marks() if str(place.table("users")) in str(mark.versions))
    earlier = lake.at(epoch=first.epoch).polars(str(place.table("users"))).collect()
    assert (earlier.columns, len(earlier)) == (["id", "email"], ROWS - 1)
    assert _holding(users.path, CANARY) == []
    assert len(_holding(users.path, SHOWN)) > 3


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ({"exclude": ["snn"]}, "COLUMNS_UNKNOWN"),
        ({"exclude": ["id"]}, "COLUMNS_KEY"),
        ({"only": ["email"]}, "COLUMNS_KEY"),
        ({"hide": ["ssn"]}, "COLUMNS_MALFORMED"),
        ({"exclude": "ssn"}, "COLUMNS_MALFORMED"),
        ({"exclude": ["ssn"], "only": ["id"]}, "COLUMNS_MALFORMED"),
        ({"exclude": ["ssn"], "columns": ["id"]}, "COLUMNS_MALFORMED"),
        ({"hash": ["snn"]}, "COLUMNS_UNKNOWN"),
        ({"exclude": ["ssn"], "hash": ["ssn"]}, "COLUMNS_MALFORMED"),
        ({"only": ["id"], "hash": ["ssn"]}, "COLUMNS_MALFORMED"),
        ({"hash": ["amount"]}, "COLUMNS_HASH_TYPE"),
    ],
)
def test_a_rule_that_cannot_be_kept_is_refused(shared_users: Mirror, rule: dict[str, Any], code: str) -> None:
    """Nothing is made, neither a lake nor objects upstream."""
    assert shared_users.stops(**_columns(shared_users, rule)).code == code
    assert not shared_users.path.exists()


def test_a_rule_of_a_table_that_is_not_there_is_refused(shared_users: Mirror) -> None:
    error = shared_users.stops(**_columns(shared_users, EXCLUDE, "user"))
    assert (error.code, shared_users.path.exists()) == ("COLUMNS_TABLE_UNKNOWN", False)
    assert error.detail is not None
    assert "users" in error.detail


@pytest.fixture(scope="module")
def shared_users(
    request: pytest.FixtureRequest, source: SourceUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mirror]:
    """A table for several runs that are refused."""
    with mirror_of(request, source, tmp_path_factory.mktemp("refused") / "lake") as made:
        execute(made.place, TABLE, "ALTER TABLE users ADD COLUMN amount double precision")
        yield made


def test_a_run_without_a_key_makes_nothing(shared_users: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, code in (("", "COLUMNS_HASH_KEY_MISSING"), ("short", "COLUMNS_HASH_KEY_SHORT")):
        monkeypatch.setenv("HEADRACE_HASH_KEY", key)
        assert shared_users.stops(**_columns(shared_users, {"hash": ["ssn"]})).code == code
    assert not shared_users.path.exists()


def test_another_rule_than_the_lake_keeps_is_refused(users: Mirror) -> None:
    """A rule that names columns which came later is taken up; so is one of a table that is not mirrored."""
    users.once(**_columns(users, EXCLUDE))
    others = (None, {"exclude": ["ssn"]}, {"exclude": ["ssn", "email"]}, {"only": ["id"]})
    for rule in (*others, {"only": ["id", "email", "ssn"]}):
        options = {} if rule is None else _columns(users, rule)
        assert users.stops(**options).code == "COLUMNS_CHANGED"
    execute(users.place, "ALTER TABLE users ADD COLUMN more int", "UPDATE users SET more = 7 WHERE id = 5")
    users.once(**_columns(users, EXCLUDE))
    assert _names(users) == ["id", "email"]
    named = _columns(users, {"only": ["id", "email", "more"]})
    users.once(**named)
    users.ask("resync", "users")
    users.once(**named)
    assert _names(users) == ["id", "email", "more"]
    assert users.verify() == {str(users.place.table("users")): "equal"}


def test_a_lake_that_held_the_values_is_refused(users: Mirror) -> None:
    """A table that is mirrored already, and one that was, whose older versions the lake keeps."""
    users.once()
    rule = _columns(users, EXCLUDE)
    for later in (rule, _columns(users, {"hash": ["ssn"]})):
        assert users.stops(**later).code == "COLUMNS_CHANGED"
    execute(users.place, "CREATE TABLE others (id int PRIMARY KEY, secret varchar(60))")
    execute(users.place, f"INSERT INTO others VALUES (1, '{CANARY}')")
    users.ask("tables.drop", "users")
    users.once(tables=[], **_both(users))
    with pytest.raises(HeadraceError) as refused:
        users.ask("tables.add", "users")
    assert refused.value.code == "COLUMNS_HELD"
    users.ask("tables.add", "others")
    lake = users.once(tables=[], **_both(users))
    assert lake.at().polars(str(users.place.table("others"))).collect_schema().names() == ["id"]
    execute(users.place, f"ALTER TABLE others ADD COLUMN more varchar(60) DEFAULT '{CANARY}'")
    lake = users.once(tables=[], **_both(users))
    assert lake.at().polars(str(users.place.table("others"))).collect_schema().names() == ["id"]


def _both(mirror: Mirror) -> dict[str, Any]:
    names = {str(mirror.place.table("users")): EXCLUDE, str(mirror.place.table("others")): ONLY_OTHERS}
    return {"columns": names}


@pytest.mark.full
def test_later_columns_come_in_if_the_rules_include_them(users: Mirror) -> None:
    rules = {**_columns(users, EXCLUDE)["columns"], "new_columns": "include"}
    users.once(columns=rules)
    execute(users.place, "ALTER TABLE users ADD COLUMN more int", "UPDATE users SET more = 7 WHERE id = 5")
    for _ in range(2):
        users.once(columns=rules)
    assert _names(users) == ["id", "email", "more"]
    assert users.verify() == {str(users.place.table("users")): "equal"}
    assert _holding(users.path, CANARY) == []


# --- hashes ------------------------------------------------------------------------------------------

HASHED = {"hash": ["code", "ssn", "number", "born", "padded", "own"]}
# A type that other sources lack, and a value of it.
OWN = {
    "postgres": ("uuid", "77a1c0de-0000-4000-8000-77ab01770177"),
    "mysql": ("bigint unsigned", "18446744073709551601"),
    "mariadb": ("varchar(20) CHARACTER SET latin1", "ça77ab01"),
}


@dataclass(frozen=True)
class People:
    """A table whose columns are hashed, and what a lake must hold of it."""

    source: SourceUnderTest
    mirror: Mirror
    key: str = "code"

    @property
    def name(self) -> str:
        return str(self.mirror.place.table("people"))

    @property
    def options(self) -> dict[str, Any]:
        return _columns(self.mirror, HASHED, "people")

    def execute(self, *statements: str) -> None:
        execute(self.mirror.place, *statements)

    @property
    def own(self) -> tuple[str, str]:
        """The type of the server's own column, and a value of it."""
        return OWN[self.source.kind.partition("-")[0]]

    def make(self) -> None:
        columns = "id int, code varchar(60), ssn text, number bigint, born date, padded char(30)"
        more = f"own {self.own[0]}, email varchar(60), PRIMARY KEY ({self.key})"
        self.execute(f"CREATE TABLE people ({columns}, {more})", self.rows(1, ROWS))

    def values(self, n: int) -> dict[str, str]:
        return {
            "code": f"{CANARY}-k{n}",
            "ssn": f"{CANARY}é{n}",
            "number": str(77_010_000 + n),
            "born": f"1977-01-0{n % 9 + 1}",
            "padded": f"{CANARY}-p",
            "own": self.own[1],
        }

    def rows(self, first: int, last: int) -> str:
        texts = ((n, *self.values(n).values(), f"{SHOWN}{n}") for n in range(first, last))
        rows = ", ".join("(" + ", ".join(f"'{text}'" for text in row) + ")" for row in texts)
        return f"INSERT INTO people (id, {', '.join(self.values(0))}, email) VALUES {rows}"

    def expected(self, n: int, **others: str | None) -> dict[str, Any]:
        """The row of the lake, with other values in some columns."""
        texts: dict[str, str | None] = {**self.values(n), **others}
        hashes = {name: None if text is None else KEY.hash(text.encode()) for name, text in texts.items()}
        return {"id": n, "email": f"{SHOWN}{n}", **hashes}

    def held(self, *numbers: int) -> list[dict[str, Any]]:
        rows = self.mirror.lake.at().polars(self.name).collect()
        return [row for n in numbers for row in rows.filter(rows["id"] == n).to_dicts()]

    def secrets(self) -> list[str]:
        """The files with a value that is to be hashed, or with the key."""
        texts = (CANARY, "770100", "77019999", "1977-01", self.own[1], KEY.text)
        return [path for text in texts for path in _holding(self.mirror.path, text)]


@pytest.fixture
def people(source: SourceUnderTest, mirror: Mirror) -> People:
    made = People(source, mirror)
    made.make()
    return made


def test_a_hashed_value_is_nowhere_and_its_hash_is_the_same_everywhere(people: People) -> None:
    """By snapshot and stream, in a key too, and verified."""
    people.mirror.once(**people.options)
    assert people.held(7) == [people.expected(7)]
    people.execute(
        people.rows(1000, 1010),
        f"UPDATE people SET ssn = '{CANARY}-u', number = 77019999 WHERE code = '{CANARY}-k8'",
        f"UPDATE people SET code = '{CANARY}-m' WHERE code = '{CANARY}-k9'",
        f"UPDATE people SET ssn = NULL WHERE code = '{CANARY}-k10'",
        f"DELETE FROM people WHERE code = '{CANARY}-k11'",
    )
    lake = people.mirror.once(**people.options)
    assert people.held(8, 9, 10, 11, 1007) == [
        people.expected(8, ssn=f"{CANARY}-u", number="77019999"),
        people.expected(9, code=f"{CANARY}-m"),
        people.expected(10, ssn=None),
        people.expected(1007),
    ]
    assert len(lake.at().polars(people.name).collect()) == ROWS - 1 + 10 - 1
    assert people.mirror.verify() == {people.name: "equal"}
    assert people.secrets() == []
    assert len(_holding(people.mirror.path, SHOWN)) > 3


def test_another_key_is_refused(people: People, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a run and by verify; with the key of before both go on."""
    people.mirror.once(**people.options)
    monkeypatch.setenv("HEADRACE_HASH_KEY", KEY.text.upper())
    assert people.mirror.stops(**people.options).code == "COLUMNS_HASH_KEY_CHANGED"
    with pytest.raises(HeadraceError) as refused:
        people.mirror.verify()
    assert refused.value.code == "COLUMNS_HASH_KEY_CHANGED"
    monkeypatch.setenv("HEADRACE_HASH_KEY", KEY.text)
    people.mirror.once(**people.options)


@pytest.mark.full
@pytest.mark.parametrize(("identity", "how"), [("code", {}), ("id", CHUNKS)], ids=["snapshot", "chunks"])
def test_no_ddl_brings_a_hashed_value(
    source: SourceUnderTest, mirror: Mirror, identity: str, how: dict[str, Any]
) -> None:
    """A column that comes with a default, and one under another name; then a resync."""
    people = People(source, mirror, identity)
    people.make()
    options = {**people.options, **how}
    first = mirror.once(**options).marks()[-1]
    # Our publication depends on the columns in its list.
    people.execute(f"ALTER TABLE people DROP COLUMN ssn{' CASCADE' if source.kind == 'postgres' else ''}")
    added = f"ADD COLUMN ssn varchar(70) DEFAULT '{CANARY}-d'"
    people.execute(f"ALTER TABLE people {added}", people.rows(2000, 2003))
    for _ in range(2):
        mirror.once(**options)
    assert people.held(7, 2001) == [people.expected(7, ssn=f"{CANARY}-d"), people.expected(2001)]
    people.execute("ALTER TABLE people RENAME COLUMN ssn TO renamed")
    people.execute(f"UPDATE people SET renamed = '{CANARY}-r' WHERE id = 7")
    for _ in range(2):
        mirror.once(**options)
    assert "renamed" not in people.held(7)[0]
    mirror.ask("resync", "people")
    lake = mirror.once(**options)
    assert mirror.verify() == {people.name: "equal"}
    earlier = lake.at(epoch=first.epoch).polars(people.name).collect()
    assert earlier.filter(earlier["id"] == 7).to_dicts() == [people.expected(7)]
    assert people.secrets() == []


@pytest.mark.full
def test_a_hashed_column_may_get_another_type(source: SourceUnderTest, people: People) -> None:
    """One whose texts are the same; with any other one the table stops. PostgreSQL refuses both by itself."""
    if source.kind == "postgres":
        people.mirror.once(**people.options)
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            people.execute("ALTER TABLE people ALTER number TYPE int")
        return
    people.mirror.once(**people.options)
    people.execute("ALTER TABLE people MODIFY number int", people.rows(3000, 3003))
    for _ in range(2):
        people.mirror.once(**people.options)
    assert people.held(7, 3001) == [people.expected(7), people.expected(3001)]
    people.execute("ALTER TABLE people MODIFY number double")
    stop = people.mirror.stops(**people.options)
    assert (stop.code, "COLUMNS_HASH_TYPE" in (stop.detail or "")) == ("TABLE_CHANGED", True)
    with pytest.raises(HeadraceError) as refused:
        people.mirror.ask("resync", "people")
    assert refused.value.code == "COLUMNS_HASH_TYPE"
    assert people.secrets() == []


@pytest.mark.full
def test_columns_that_come_beside_hashed_ones_come_in_if_the_rules_include_them(people: People) -> None:
    """With rows from before and after them in one read."""
    rules = {**people.options["columns"], "new_columns": "include"}
    people.mirror.once(columns=rules)
    people.execute(people.rows(3000, 3003), "ALTER TABLE people ADD COLUMN more int DEFAULT 5")
    people.execute(people.rows(3100, 3103), "UPDATE people SET more = 7 WHERE id = 7")
    for _ in range(2):
        people.mirror.once(columns=rules)
    expected = [{**people.expected(n), "more": more} for n, more in ((7, 7), (8, 5), (3001, 5), (3101, 5))]
    assert people.held(7, 8, 3001, 3101) == expected
    assert people.mirror.verify() == {people.name: "equal"}
    assert people.secrets() == []
