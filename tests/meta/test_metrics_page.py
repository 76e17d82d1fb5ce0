"""docs/metrics.md lists exactly the metrics that are served; what we ship for monitoring names no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from headrace.web.metrics import LIVING, METRICS
from setup.assemble_metrics import PAGE, page
from tests.meta.tracked import ROOT

_SUFFIX = re.compile(r"_(?:bucket|sum|count)\Z")
_NAME = re.compile(r"\bheadrace_[a-z_]+\b")
MONITORING = sorted((ROOT / "examples" / "monitoring").glob("*.*"))
NAMES = {metric.name for metric in METRICS}


def test_the_page_is_made_from_the_code() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run: make docs"


def test_the_page_names_each_metric_once_and_no_other() -> None:
    rows = re.findall(r"(?m)^\| `(\w+)`", PAGE.read_text(encoding="utf-8"))
    assert sorted(rows) == sorted(NAMES)
    assert NAMES >= LIVING


def test_names_are_as_prometheus_wants_them() -> None:
    for metric in METRICS:
        assert metric.name.endswith("_total") == (metric.kind == "counter"), metric.name
        assert metric.name.endswith("_info") == (metric.kind == "info"), metric.name
        assert metric.help.endswith("."), metric.name


@pytest.mark.parametrize("path", MONITORING, ids=lambda path: path.name)
def test_rules_and_dashboard_name_metrics_that_are_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = {_SUFFIX.sub("", name) for name in _NAME.findall(text)}
    assert named - NAMES == set()


def test_there_are_rules_and_a_dashboard() -> None:
    assert {path.name for path in MONITORING} >= {"alerts.yml", "alerts_test.yml", "dashboard.json"}
    dashboard = json.loads((ROOT / "examples" / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    asked = {name for name in NAMES for panel in dashboard["panels"] if name in json.dumps(panel)}
    assert len(asked) > 12
