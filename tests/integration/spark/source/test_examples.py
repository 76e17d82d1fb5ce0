"""The examples of docs/spark.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.laws.lake.chronicle import AWKWARD, Chronicle, Transaction
from tests.meta.tracked import ROOT

_BLOCK = re.compile(r"(?ms)^```python\n(.*?)^```$")


@pytest.mark.spark
def test_the_examples_of_the_page_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = (1, *[None] * (len(AWKWARD) - 1))
    chronicle = Chronicle(str(tmp_path / "lake"))
    chronicle.copy({"public.orders": [row], "public.items": [row]}, 1000)
    chronicle.publish([Transaction(1010, 1, {"public.orders": [(row, 1)]})])
    # The processes that plan a read are children of Spark's JVM, and have its directory.
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8").replace('"./', f'"{tmp_path}/')
    names: dict[str, Any] = {"spark": spark}
    blocks = _BLOCK.findall(page)
    assert len(blocks) >= 4
    for block in blocks:
        exec(compile(block, "docs/spark.md", "exec"), names)  # noqa: S102
    assert names["query"].exception() is None
    assert "0 2" in capsys.readouterr().out


def test_the_pipeline_that_the_page_shows_stands_in_the_example() -> None:
    """A pipeline runs by a command of Spark's: `test_auto_cdc` runs the example."""
    page = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
    example = (ROOT / "examples" / "auto-cdc" / "transformations" / "orders.py").read_text(encoding="utf-8")
    [shown] = re.findall(r"(?ms)^```py\n(.*?)^```$", page)
    parts = [part.strip() for part in shown.split("\n\n\n")]
    assert len(parts) == 2
    assert all(part in example for part in parts)
