"""Trino, with its connector delta_lake, reads each table at each mark and history as ours do.

It cuts instants to milliseconds, and refuses files whose deletion vectors stand in the log, as ours do.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.cli.main import main
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace_testing.trino import QueryError, TrinoServer, trino
from tests.readers.sample import PLAIN, SOURCE, Sample

pytestmark = pytest.mark.full


def test_it_runs_the_views_of_each_mark_and_reads_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample(open_store(tmp_path / "lake"))
    url = sample.store.url
    with trino(tmp_path) as server:
        for epoch in (2, 3):
            assert main(["views", "--lake", url, "--engine", "trino", "--epoch", str(epoch)]) == 0
            _make_views(server, capsys.readouterr().out.splitlines(), once=epoch == 2)
            for name in PLAIN:
                found = server.run(f"SELECT * FROM {_quoted(name)}")
                assert (name, sorted(map(str, found))) == (name, _spelled(sample.expected[epoch, name]))
            with pytest.raises(QueryError, match="storage type for deletion vector: i"):
                server.run("SELECT * FROM public.worn")
            assert server.run("SELECT id FROM public.kinds WHERE dec > 0") == [[2**63 - 1]]
        folder = layout.history_folder(SOURCE, TableName("Sales Data", "Order"), 1)
        server.run(f"CALL delta.system.register_table('public', 'history', 'file://{url}/{folder}')")
        found = server.run("SELECT * FROM delta.public.history WHERE _time < 1000")
        ours = Lake(url).at(epoch=3).history('"Sales Data"."Order"')
        assert sorted(map(str, found)) == _spelled(ours)


def _make_views(server: TrinoServer, lines: list[str], *, once: bool) -> None:
    for line in lines:
        if line.startswith("-- once: ") and once:
            server.run(line.removeprefix("-- once: ").rstrip(";"))
        elif not line.startswith("--"):
            server.run(line.rstrip(";"))


def _quoted(name: str) -> str:
    table = TableName.parse(name)
    return f'"{table.schema}"."{table.name}"'


def _spelled(rows: pa.Table) -> list[str]:
    """Rows as Trino's protocol has them, in one order."""
    return sorted(str([_value(value) for value in row.values()]) for row in rows.to_pylist())


def _value(value: Any) -> Any:
    if isinstance(value, list):
        return [_value(each) for each in value]
    return next((spell(value) for kind, spell in _SPELLED.items() if isinstance(value, kind)), value)


def _moment(value: datetime) -> str:
    if value.tzinfo is None:
        return value.isoformat(sep=" ", timespec="microseconds")
    plain = value.astimezone(UTC).replace(tzinfo=None)
    return f"{plain.isoformat(sep=' ', timespec='milliseconds')} UTC"


def _float(value: float) -> float | str:
    text = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}.get(str(value))
    return value if text is None else text


_SPELLED: dict[type, Callable[[Any], Any]] = {  # a datetime is a date, too
    datetime: _moment,
    date: str,
    bytes: lambda value: base64.b64encode(value).decode(),
    Decimal: str,
    float: _float,
}
