"""G8: a value of a column that is kept out or hashed is nowhere: not in lake, spool, plans or (event) logs.

Nor is the key of the hashes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headrace_testing.mirror_process import COMMAND, Mirrored
from headrace_testing.mysql import Database as MysqlDatabase
from headrace_testing.postgres import Server

CANARY, SHOWN = "canary-77ab01", "shown-55cd02"
KEY = "5f0c6a1d9e3b47c2" * 2


def _rows(first: int) -> str:
    rows = ", ".join(
        f"({n}, '{SHOWN}{n}', '{CANARY}{n}', '{CANARY}-t{n}')" for n in range(first, first + 500)
    )
    return f"INSERT INTO users VALUES {rows}"


@pytest.mark.spark
@pytest.mark.server
@pytest.mark.full
@pytest.mark.parametrize("kind", ["postgres", "mysql"])
def test_g8_what_a_rule_keeps_out_is_nowhere(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str
) -> None:
    """Copied and streamed by jobs of Spark, in chunks; killed, so that the spool stays."""
    events = tmp_path / "events"
    events.mkdir()
    conf = {"spark.eventLog.enabled": "true", "spark.eventLog.compress": "false"}
    spark = {"conf": {**conf, "spark.eventLog.dir": events.as_uri()}}
    if kind == "postgres":
        server: Server = request.getfixturevalue("postgres_server")
        with server.database() as database:
            _mirror(tmp_path / "lake", database, database.url(user="app"), "public", spark)
    else:
        found: MysqlDatabase = request.getfixturevalue("mysql_database")
        _mirror(tmp_path / "lake", found, found.url(user="mirror"), found.name, spark)
    assert any(path.stat().st_size > 10_000 for path in events.rglob("*") if path.is_file())
    assert _holding(tmp_path, CANARY) == []
    assert _holding(tmp_path, KEY) == []
    found_in = _holding(tmp_path, SHOWN)
    assert any("/spool/" in path for path in found_in)


def _mirror(lake: Path, database: Any, url: str, schema: str, spark: dict[str, Any]) -> None:
    rules = json.dumps({f"{schema}.users": {"exclude": ["ssn"], "hash": ["token"]}})
    options = {"columns": rules, "driver_epochs": 0, "handoff": "chunks", "chunk_bytes": 4_000}
    owner = {"user": "app"} if schema == "public" else {}
    columns = "id int PRIMARY KEY, email varchar(60), ssn varchar(60), token varchar(60)"
    database.execute(f"CREATE TABLE users ({columns})", **owner)
    database.execute(_rows(0), **owner)
    said = {"HEADRACE_SPARK_LOG": "INFO", "HEADRACE_HASH_KEY": KEY}
    with Mirrored(
        lake, url, f"{schema}.*", environment=said, options=options, spark=spark, program=COMMAND
    ) as mirror:
        mirror.until_live()
        for number in (1, 2):
            epoch = mirror.lake.marks()[-1].epoch
            database.execute(_rows(1000 * number), **owner)
            database.execute(
                f"UPDATE users SET ssn = '{CANARY}', token = '{CANARY}' WHERE id < {number}", **owner
            )
            mirror.until(lambda seen=epoch: mirror.lake.at().mark.epoch > seen, "mark")  # type: ignore[misc]
        mirror.kill()
        (lake.parent / "log").write_text(mirror.log())


def _holding(root: Path, needle: str) -> list[str]:
    files = sorted(each for each in root.rglob("*") if each.is_file())
    return [str(each.relative_to(root)) for each in files if needle.encode() in each.read_bytes()]
