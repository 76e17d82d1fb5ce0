"""Delta's own connector for Spark reads each table at each mark, history and marks as ours do."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.main import main
from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from tests.plain_spark import carry_out_by_delta, load
from tests.readers.sample import NAMES, SOURCE, Sample, in_order


@pytest.mark.full
@pytest.mark.spark
def test_it_runs_the_views_of_each_mark_and_reads_history(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = Sample(open_store(tmp_path / "a lake, {é}"))
    url, folder = sample.store.url, layout.history_folder(SOURCE, TableName("Sales Data", "Order"), 1)
    files = {(epoch, name): tmp_path / f"{epoch} {name}.arrow" for epoch in (2, 3) for name in NAMES}
    history, marks = tmp_path / "history.arrow", tmp_path / "marks.arrow"
    steps = [
        (str(history), f"SELECT * FROM delta.`{url}/{folder}`"),
        (str(marks), f"SELECT epoch, frontier FROM delta.`{url}/{layout.marks_folder(SOURCE)}`"),
    ]
    for epoch in (2, 3):
        assert main(["views", "--lake", url, "--engine", "delta", "--epoch", str(epoch)]) == 0
        lines = capsys.readouterr().out.splitlines()
        steps += [("", line.rstrip(";")) for line in lines if not line.startswith("--")]
        steps += [(str(files[epoch, name]), f"SELECT * FROM `{name.replace(chr(34), '')}`") for name in NAMES]
    carry_out_by_delta(steps)
    for key, file in files.items():
        found, expected = load(file), sample.expected[key]
        assert found.column_names == expected.column_names
        assert in_order(found.cast(expected.schema)) == in_order(expected)
    found = load(history)
    rows = in_order(found.rename_columns([layout.unquote(name) for name in found.column_names]))
    ours = Lake(url).at(epoch=3).history('"Sales Data"."Order"')
    assert [row for row in rows if row["_time"] < 1 << 60] == in_order(ours)
    published = sorted(tuple(row.values()) for row in load(marks).to_pylist())
    assert published == [(mark.epoch, mark.frontier) for mark in Lake(url).marks()]
