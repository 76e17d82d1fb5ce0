"""A pytest plugin: `--report FILE` writes what ran, as a markdown table that is kept in docs/reports/.

Called by `make integration`. The report holds the seed, the versions that decide what works, each
test with its outcome and its seconds, and the reason of each that did not run: "it says what is
missing". It never holds a failure's text, which may show rows or paths of a machine; that is on the
terminal.
"""

from __future__ import annotations

import datetime
import os
import re
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.cli.version import versions

_PATHS = re.compile(r"/[\w.-]+(?:/[\w.@-]+)+")


@dataclass
class Row:
    """One test: its worst outcome over set-up, call and teardown, and the seconds of all three."""

    outcome: str = "passed"
    seconds: float = 0.0
    note: str = ""


@dataclass
class Report:
    """Collects while the tests run; writes at the end."""

    path: Path
    rows: dict[str, Row] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows.setdefault(report.nodeid, Row())
        row.seconds += report.duration
        if report.outcome != "passed" and row.outcome != "failed":
            row.outcome = report.outcome
        if report.skipped and isinstance(report.longrepr, tuple):
            row.note = _PATHS.sub("…", report.longrepr[2]).replace("|", "/").replace("\n", " ")

    def pytest_sessionfinish(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        outcomes = Counter(row.outcome for row in self.rows.values())
        lines = [
            "# Integration report",
            "",
            f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC · seed {os.environ['HEADRACE_SEED']}"
            " · " + ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())),
            "",
            " · ".join(f"{name} {number or '-'}" for name, number in versions().items()),
            "",
            "| test | outcome | seconds | note |",
            "|---|---|---:|---|",
            *(
                f"| {_cell(name)} | {r.outcome} | {r.seconds:.1f} | {r.note} |"
                for name, r in sorted(self.rows.items())
            ),
        ]
        return "\n".join(lines) + "\n"


def _cell(nodeid: str) -> str:
    return nodeid.removeprefix("tests/").replace("|", "\\|")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--report", metavar="FILE", help="write what ran as a markdown table")


def pytest_configure(config: pytest.Config) -> None:
    target = config.getoption("--report")
    if target:
        config.pluginmanager.register(Report(Path(target)), "headrace-report")
