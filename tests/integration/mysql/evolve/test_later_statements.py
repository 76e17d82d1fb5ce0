"""A look that shows a later statement proves nothing about an earlier one.

statement ─► the end of a batch ─► later statements ─► the look that belongs to the batch
"""

from __future__ import annotations

import pytest

from headrace.pipeline.stream import batches
from headrace_testing import validators
from headrace_testing.mysql import Database
from tests.conformance.conftest import Mirror
from tests.integration.mysql.mirrors.judging import kinds

pytestmark = pytest.mark.server

# By the table: what the batch brings, and what has been done behind it by the time of the look.
CASES = {
    "lossy": (
        "SET sql_mode = ''; ALTER TABLE {t} MODIFY n tinyint",
        "ALTER TABLE {t} MODIFY n int",
    ),
    "cut": (
        "SET sql_mode = ''; ALTER TABLE {t} MODIFY s varchar(3)",
        "ALTER TABLE {t} MODIFY s varchar(20)",
    ),
    "rounded": ("ALTER TABLE {t} MODIFY p decimal(8,0)", "ALTER TABLE {t} MODIFY p decimal(8,2)"),
    "zeroed": (
        "SET sql_mode = ''; ALTER TABLE {t} MODIFY z int NOT NULL",
        "ALTER TABLE {t} MODIFY z int",
    ),
    "recoded": (
        "SET sql_mode = ''; ALTER TABLE {t} CONVERT TO CHARACTER SET latin1",
        "ALTER TABLE {t} CONVERT TO CHARACTER SET utf8mb4",
    ),
    "filled": (
        "ALTER TABLE {t} ADD more int",
        "UPDATE {t} SET more = id; ALTER TABLE {t} MODIFY more int NOT NULL",
    ),
    # Under every mode the time of the statement stands where NULL stood.
    "timed": ("ALTER TABLE {t} MODIFY m timestamp NOT NULL, ALGORITHM = COPY", "DO 1"),
}
# A text without a charset has the table's own, which may have been another one for a moment. Apart from the
# others, which have the mark wait until the stream has brought the rest.
BY_DEFAULT = {
    "by_default": (
        "SET sql_mode = ''; ALTER TABLE {t} MODIFY s varchar(30)",
        "ALTER TABLE {t} MODIFY s varchar(30) CHARACTER SET utf8mb4",
    ),
    "by_a_default": (
        "SET sql_mode = ''; ALTER TABLE {t} CHARACTER SET latin1; ALTER TABLE {t} MODIFY s varchar(30)",
        "ALTER TABLE {t} COLLATE = utf8mb4_bin; ALTER TABLE {t} MODIFY s varchar(30)",
    ),
    "by_the_default": (
        "SET sql_mode = ''; ALTER TABLE {t} MODIFY s varchar(30)",
        "ALTER TABLE {t} DEFAULT CHARSET utf8mb4; ALTER TABLE {t} MODIFY s varchar(30)",
    ),
}
MADE = (
    "CREATE TABLE {t} (id int PRIMARY KEY, n int, s varchar(20) CHARACTER SET utf8mb4, p decimal(8,2), z int,"
    " m timestamp NULL) CHARACTER SET utf8mb4"
)
LATIN = MADE.removesuffix("utf8mb4") + "latin1"
ROWS = "INSERT INTO {t} VALUES (1, 1000, 'a long text', 1.25, NULL, NULL), (2, 5, '𝄞é', 2, 1, NULL)"


def _run(database: Database, statements: str, name: str) -> None:
    with database.connect(autocommit=True) as connection, connection.cursor() as cursor:
        for statement in statements.format(t=name).split("; "):
            cursor.execute(statement)


@kinds("mysql")
def test_a_later_statement_hides_nothing_that_an_earlier_one_did(
    mirror: Mirror, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*CASES, *BY_DEFAULT):
        _run(database, LATIN if name in ("by_default", "by_the_default") else MADE, name)
        _run(database, ROWS, name)
    mirror.once()
    taken = batches.next_batch
    left: dict[str, str] = {}

    def altered_behind(*args: object, **options: object) -> object:
        found = taken(*args, **options)  # type: ignore[arg-type]
        while left and found is not None and len(found.transactions):
            _run(database, *reversed(left.popitem()))
        return found

    monkeypatch.setattr(batches, "next_batch", altered_behind)
    for cases in (BY_DEFAULT, CASES):
        for name, (first, later) in cases.items():
            _run(database, first, name)
            left[name] = later
        mirror.once()
        assert left == {}
        mirror.once()
    tables = {str(mirror.place.table(name)) for name in (*CASES, *BY_DEFAULT)}
    assert set(mirror.lake.at().mark.versions) == tables
    assert validators.exact(mirror.lake, mirror.place.url, values=True) == []
    assert validators.consistent(mirror.lake) == []
