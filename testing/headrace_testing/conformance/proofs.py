"""A mirror proves that it equals its source, and shows its past; it leaks no password and no row's value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from headrace.lake.format import layout
from headrace_testing import validators
from headrace_testing.conformance.mirror import Mirror
from headrace_testing.conformance.place import execute

SECRET = "a-value-that-belongs-in-no-message"
# Where values of rows belong: the data, the stream on its way there, the bounds of a file's columns in plans.
_DATA = ("tables", "history", "errors", "_headrace/spool", "_headrace/epochs")


@pytest.fixture
def followed(mirror: Mirror) -> Mirror:
    """A table with a key and one without, copied and changed."""
    execute(mirror.place, "CREATE TABLE t (id int PRIMARY KEY, n int)", "CREATE TABLE u (id int PRIMARY KEY)")
    execute(mirror.place, "INSERT INTO t VALUES (1, 1), (2, 2), (3, 3)", "INSERT INTO u VALUES (1)")
    mirror.once()
    return mirror


def test_verify_passes_and_names_the_table_that_somebody_changed_in_the_lake(followed: Mirror) -> None:
    t, u = (str(followed.place.table(name)) for name in "tu")
    execute(followed.place, "UPDATE t SET n = 20 WHERE id = 2")
    followed.once()
    assert followed.verify() == {t: "equal", u: "equal"}
    _falsify(followed, "t")
    assert followed.verify() == {t: "different", u: "equal"}


def _falsify(mirror: Mirror, table: str) -> None:
    """Change a value of each row in the files of the lake, without a commit."""
    folder = mirror.path / layout.table_folder("main", mirror.place.table(table))
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path)
        rows = rows.set_column(1, rows.schema.field(1), pc.add(rows["n"], pa.scalar(1, pa.int32())))
        pq.write_table(rows, path)


def test_each_committed_state_can_be_read_again(followed: Mirror) -> None:
    """Read each state by its position, at marks and between them."""
    recordings, name = [], str(followed.place.table("t"))
    for number in range(1, 6):
        changes = (f"UPDATE t SET n = n * 10 WHERE id <= {number}", f"INSERT INTO t VALUES (1{number}, 0)")
        execute(followed.place, *changes)
        recordings.append(validators.record(followed.place.url, [name]))
    execute(followed.place, "DELETE FROM t")
    lake = followed.once()
    for recording in recordings:
        rows = lake.at(position=recording.position).arrow(name)
        assert rows.num_rows == int(recording.rows[name].frame["n"].sum())
    assert validators.exact_at(lake, recordings, values=True) == []
    assert validators.travelled(lake, tables=[name], sample=20) == []


def test_no_password_and_no_value_of_a_row_stands_where_it_does_not_belong(
    mirror: Mirror, capfd: pytest.CaptureFixture[str]
) -> None:
    place, columns = mirror.place, "(id int PRIMARY KEY, s varchar(100), n int)"
    execute(place, *(f"CREATE TABLE {table} {columns}" for table in "tu"))
    execute(place, *(f"INSERT INTO {table} VALUES (1, '{SECRET}', 1)" for table in "tu"))
    mirror.once()
    execute(place, f"UPDATE t SET s = '{SECRET} 2'", "ALTER TABLE u DROP COLUMN n")
    execute(place, f"INSERT INTO t VALUES (2, '{SECRET} 3', 2)", f"INSERT INTO u VALUES (2, '{SECRET} 3')")
    error = mirror.stops(on_ddl="stop")
    said = "".join(capfd.readouterr()) + str(error) + (error.detail or "") + error.hint
    password = place.password or SECRET
    assert (password in said, SECRET in said) == (False, False)
    files = [path for path in mirror.path.rglob("*") if path.is_file()]
    told = [path for path in files if not str(path.relative_to(mirror.path)).startswith(_DATA)]
    assert told
    assert [path for path in told if SECRET.encode() in path.read_bytes()] == []
    if place.password is not None:
        assert [path for path in files if place.password.encode() in path.read_bytes()] == []
