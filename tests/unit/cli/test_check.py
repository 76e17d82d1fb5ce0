"""The words of `headrace check`: what is said of several tables is said once."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.cli import main as cli
from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.pipeline.state import choice
from headrace.sources.contract.findings import CheckReport, Finding, Level
from headrace.sources.contract.values import TableSize

NAMES = [TableName("public", f"t{number}") for number in range(20)]


def _finding(name: TableName, detail: str | None = None, **known: Any) -> Finding:
    mend = (f"ALTER TABLE {name} REPLICA IDENTITY FULL",)
    error = Misconfigured("PG_SOME", f"table {name} has no key", detail=detail, hint=f"{mend[0]}; or wait")
    return Finding(Level.WARNING, error, mend=mend, table=name, **known)


def _printed(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    *findings: Finding,
    json: bool = False,
) -> list[str]:
    report = CheckReport(180000, (), {}, findings)
    monkeypatch.setattr(choice, "examine", lambda config: report)
    assert cli.main(["check", "postgresql://me@nowhere.invalid/db", *(["--json"] if json else [])]) == 2
    return capsys.readouterr().out.splitlines()


def test_findings_that_are_alike_are_one_with_a_list(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    findings = [_finding(name) for name in NAMES]
    lines = _printed(monkeypatch, capsys, *findings, _finding(NAMES[0], leaves_out=True))
    assert lines[0] == "warning PG_SOME: table public.t0 has no key"
    assert lines[1] == "    likewise 19 more: " + ", ".join(map(str, NAMES[1:]))
    assert lines[2:22] == [f"    ALTER TABLE {name} REPLICA IDENTITY FULL;" for name in NAMES]
    assert lines[22:24] == ["    or wait", "warning, left out PG_SOME: table public.t0 has no key"]
    told = json.loads(_printed(monkeypatch, capsys, *findings, json=True)[0])
    assert len(told["findings"]) == 20
    assert told["an_hour"] is None


def test_what_differs_from_table_to_table_is_said_of_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = _printed(monkeypatch, capsys, _finding(NAMES[0], "column a"), _finding(NAMES[1], "column b"))
    assert lines[2:4] == ["    public.t0: column a", "    public.t1: column b"]


def test_tables_that_an_option_alone_keeps_out_are_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    error = Misconfigured("PG_OTHERS", "they are not yours", hint="use --publication p")
    foreign = Finding(Level.ERROR, error, tables=tuple(NAMES), option="--publication p")
    lines = _printed(monkeypatch, capsys, foreign, _finding(NAMES[0], leaves_out=True))
    assert lines[-2:] == [
        "0 tables can be mirrored: about 0 rows, 0.0 MB; 1 is left out",
        "19 more can be mirrored by --publication p, as said above",
    ]


def test_an_hour_of_a_mirror_is_forecast(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = CheckReport(180000, (), {NAMES[0]: TableSize(1_000_000, 10_000, 60.0)}, ())
    monkeypatch.setattr(choice, "examine", lambda config: report)
    cli.main(["check", "postgresql://me@nowhere.invalid/db"])
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("At 60 changes an hour (the server's statistics) the lake grows by about 4")
    cli.main(["check", "postgresql://me@nowhere.invalid/db", "--json"])
    assert json.loads(capsys.readouterr().out)["an_hour"]["changes"] == 60.0
