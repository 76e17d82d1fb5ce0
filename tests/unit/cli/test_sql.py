"""Rows are printed so that a person sees what is there, and a program reads it back."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from headrace.cli.sql import show

ROWS = pa.table(
    {
        "id": pa.array([1, 20, None], pa.int64()),
        "t": pa.array(["", 'a,"b"\nc', None]),
        "d": pa.array([Decimal("0.0000000010"), None, Decimal("-1.0000000000")], pa.decimal128(38, 10)),
        "f": pa.array([0.1, float("nan"), -0.0], pa.float64()),
        "at": pa.array([datetime(2026, 11, 20, tzinfo=UTC), None, None], pa.timestamp("us", tz="UTC")),
        "l": pa.array([[True, None], [], None], pa.list_(pa.bool_())),
        "m": pa.array([[("k", 1)], None, None], pa.map_(pa.string(), pa.int64())),
    }
)


def _shown(how: str, rows: pa.Table = ROWS) -> str:
    out = io.StringIO()
    show(rows, how, out)
    return out.getvalue()


def test_json_is_an_object_a_line_and_loses_nothing() -> None:
    one, two, three = map(json.loads, _shown("json").splitlines())
    assert one["d"] == "0.0000000010"
    assert (one["f"], two["f"], str(three["f"])) == (0.1, "NaN", "-0.0")
    assert (one["l"], two["l"], three["l"]) == ([True, None], [], None)
    assert one["at"] == "2026-11-20 00:00:00+00"
    assert two["t"] == 'a,"b"\nc'
    assert three["id"] is None


def test_csv_tells_null_from_an_empty_text() -> None:
    text = _shown("csv")
    assert text.splitlines()[1].startswith('1,"",0.0000000010,0.1,')
    head, *lines = csv.reader(io.StringIO(text))
    assert head == ROWS.column_names
    assert lines[1][1] == 'a,"b"\nc'
    assert text.splitlines()[-1].startswith(",,-1.0000000000,-0,")


def test_a_table_keeps_a_line_for_a_row() -> None:
    lines = _shown("table").splitlines()
    assert len(lines) == 2 + ROWS.num_rows + 1
    assert lines[2].split("│")[0].strip() == "1"
    assert "\\n" in lines[3]
    assert lines[4].startswith("NULL")
    assert lines[-1] == "(3 rows)"


@pytest.mark.parametrize("how", ["table", "json", "csv"])
def test_nothing_is_printed_as_nothing(how: str) -> None:
    assert _shown(how, ROWS.slice(0, 0)).count("\n") == {"table": 3, "json": 0, "csv": 1}[how]


def test_no_value_makes_a_terminal_do_anything() -> None:
    lines = _shown("table", pa.table({"t": ["\x1b[31mred", "ü\u202e\\", "plain \\"]})).splitlines()
    assert [line.strip() for line in lines[2:5]] == [r"\x1b[31mred", r"ü\u202e\\", "plain \\"]
