"""docs/spark.md describes the options of `format("headrace")`, and nothing else as one."""

from __future__ import annotations

import re

from headrace.spark.source.options import OPTIONS
from tests.meta.tracked import ROOT

PAGE = (ROOT / "docs" / "spark.md").read_text(encoding="utf-8")
_ROW = re.compile(r"(?m)^\| `(\w+)` \| (all|both|batch|stream|direct) \|")


def test_the_page_has_every_option_and_no_other() -> None:
    assert dict(_ROW.findall(PAGE)) == dict(OPTIONS)
