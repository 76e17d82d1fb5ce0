"""G8: no password or row value in a log, an error, a file name, a status page, or in Spark's event log."""

from __future__ import annotations

import json
from pathlib import Path

from tests.guarantees.conftest import SECRET, Stormy

# Where row values belong: the data itself, and the bytes of the stream on their way there.
_DATA = ("tables", "history", "errors")


def _holding(root: Path, needle: str, *, but: tuple[str, ...] = ()) -> list[str]:
    found = []
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if path.is_file() and relative.parts[0] not in but and needle.encode() in path.read_bytes():
            found.append(str(relative))
    return found


def test_g8_the_password_is_nowhere_in_the_lake(stormy: Stormy) -> None:
    assert _holding(stormy.path, stormy.password) == []


def test_g8_no_record_of_the_lake_shows_a_value_of_a_row(stormy: Stormy) -> None:
    # The spool holds the stream itself; plans are looked at below.
    found = _holding(stormy.path, SECRET, but=_DATA)
    elsewhere = ("_headrace/spool/", "_headrace/epochs/")
    assert [path for path in found if not path.startswith(elsewhere)] == []


def test_g8_plans_show_values_only_as_statistics_of_data_files(stormy: Stormy) -> None:
    plans = sorted((stormy.path / "_headrace/epochs").rglob("*.json"))
    assert len(plans) > 15
    for path in plans:
        plan = json.loads(path.read_text())
        for step in plan["steps"]:
            for file in step["add"]:
                file.pop("stats")
        assert SECRET not in json.dumps(plan), path.name


def test_g8_delta_logs_show_values_only_as_statistics_of_data_files(stormy: Stormy) -> None:
    logs = [p for root in _DATA for p in (stormy.path / root).rglob("*.json") if SECRET in p.read_text()]
    assert all(b'"minValues"' in p.read_bytes().replace(b"\\", b"") for p in logs)


def test_g8_spark_event_logs_show_neither_password_nor_values(stormy: Stormy) -> None:
    assert any(path.stat().st_size > 10_000 for path in stormy.events.rglob("*") if path.is_file())
    assert _holding(stormy.events, stormy.password) == []
    assert _holding(stormy.events, SECRET) == []


def test_g8_what_is_printed_shows_neither_password_nor_values(stormy: Stormy) -> None:
    assert stormy.output
    assert stormy.password not in stormy.output
    assert SECRET not in stormy.output


def test_g8_spool_files_are_for_their_owner_alone(stormy: Stormy) -> None:
    files = [path for path in (stormy.path / "_headrace/spool").rglob("*") if path.suffix == ".raw"]
    assert files
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
