"""A pytest plugin that collects what ran.

    --report FILE    at the end, as a markdown table that is kept in docs/reports/; by `make integration`
    --times FILE     as tests end, so that an ended run leaves its times; by `make test` (`tests.timing`)

The report holds the seed, the versions that decide what works, each
test with its outcome and its seconds, and the reason of each that did not run: "it says what is
missing". It never holds a failure's text, which may show rows or paths of a machine; that is on the
terminal.
"""

from __future__ import annotations

import datetime
import os
import re
import subprocess
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from headrace.cli.version import versions
from tests.timing import LATE, Taken

Making = Generator[None, pytest.TestReport, pytest.TestReport]
TOO_LATE = (TimeoutError, subprocess.TimeoutExpired)
_PATHS = re.compile(r"/[\w.-]+(?:/[\w.@-]+)+")


@dataclass
class Row:
    """One test: its worst outcome over set-up, call and teardown, and the seconds of all three."""

    outcome: str = "passed"
    seconds: float = 0.0
    note: str = ""


@dataclass(eq=False)  # pytest keeps its plugins in sets
class Collector:
    """Collects while the tests run, for who asked for it."""

    report: Path | None
    times: Path | None
    rows: dict[str, Row] = field(default_factory=dict)
    late: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        for path in filter(None, (self.report, self.times)):
            path.parent.mkdir(parents=True, exist_ok=True)
        if self.times is not None:
            self.times.write_text("")

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if call.excinfo is not None and call.excinfo.errisinstance((TimeoutError, subprocess.TimeoutExpired)):
            self.late.add(report.nodeid)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        row = self.rows.setdefault(report.nodeid, Row())
        row.seconds += report.duration
        if report.outcome != "passed" and row.outcome != "failed":
            row.outcome = report.outcome
        if report.skipped and isinstance(report.longrepr, tuple):
            row.note = _PATHS.sub("…", report.longrepr[2]).replace("|", "/").replace("\n", " ")
        if self.times is not None and report.when == "teardown":
            outcome = LATE if row.outcome == "failed" and report.nodeid in self.late else row.outcome
            with self.times.open("a", encoding="utf-8") as file:
                file.write(Taken(report.nodeid, row.seconds, os.getloadavg()[0], outcome).line)

    def pytest_sessionfinish(self) -> None:
        if self.report is not None:
            self.report.write_text(self.text(), encoding="utf-8")

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
    parser.addoption("--report", metavar="FILE", type=Path, help="write what ran as a markdown table")
    parser.addoption("--times", metavar="FILE", type=Path, help="write the seconds of each test")


def pytest_configure(config: pytest.Config) -> None:
    report, times = config.getoption("--report"), config.getoption("--times")
    if report or times:
        config.pluginmanager.register(Collector(report, times), "headrace-collector")
