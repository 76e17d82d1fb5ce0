"""The time budget of the tests: what it notices, and that its list names tests that are there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.meta.tracked import ROOT
from tests.timing import DOUBT, FEW, LATE, LIST, LOAD, LONGEST, SHARES, Taken, judged, late, main, read

_TEST = "tests/integration/lake/test_x.py::test_y"


def _taken(seconds: float, load: float = LOAD, test: str = _TEST) -> Taken:
    return Taken(test, seconds, load)


def test_every_listed_test_is_there() -> None:
    for line in LIST.read_text(encoding="utf-8").splitlines():
        path, _, name = line.partition("::")
        assert f"def {name.partition('[')[0]}(" in (ROOT / path).read_text(encoding="utf-8"), line


def test_a_test_that_takes_too_long_is_noticed_unless_it_is_listed() -> None:
    [line] = judged([_taken(LONGEST * DOUBT + 1)], set())
    assert line.startswith(_TEST)
    assert judged([_taken(LONGEST * DOUBT + 1)], {_TEST}) == []
    assert judged([_taken(LONGEST * DOUBT - 1)], set()) == []


def test_a_listed_test_that_became_quick_is_noticed() -> None:
    [line] = judged([_taken(1)], {_TEST})
    assert "remove it" in line


def test_on_a_busy_machine_a_test_may_take_longer() -> None:
    assert judged([_taken(LONGEST * DOUBT * 2, load=3 * LOAD)], set()) == []


def test_a_room_over_its_share_is_noticed() -> None:
    share = SHARES["integration/lake"]
    many = [_taken(10, test=f"{_TEST}[{number}]") for number in range(int(share * DOUBT / 10) + 1)]
    [line] = judged(many, set())
    assert line.startswith("tests/integration/lake")
    assert judged([_taken(1, test="tests/somewhere/test_z.py::test_z")], set()) == []


def test_what_pytest_writes_is_read(tmp_path: Path) -> None:
    made, target = tmp_path / "test_made.py", tmp_path / "times"
    made.write_text(
        "def test_a(): pass\ndef test_b(): assert False\ndef test_c(): raise TimeoutError('no mark came')\n"
    )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.reporting",
        "--times",
        str(target),
        str(made),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    assert ended.returncode == 1, ended.stdout
    assert [each.test.rpartition("::")[2] for each in read([target])] == ["test_a", "test_b", "test_c"]
    assert [each.outcome for each in read([target])] == ["passed", "failed", LATE]
    assert main([str(target)]) == 0
    assert main(["--late", str(target)]) == 1


def test_only_a_few_late_tests_are_tried_again_and_no_wrong_value() -> None:
    passed, slow = _taken(1), [Taken(f"{_TEST}[{number}]", 60, LOAD, LATE) for number in range(FEW + 1)]
    assert late([passed]) == []
    assert late([passed, *slow[:2]]) == [each.test for each in slow[:2]]
    assert late(slow) == []
    assert late([slow[0], Taken(_TEST, 1, LOAD, "failed")]) == []


def test_a_run_writes_down_what_its_tests_took(tmp_path: Path) -> None:
    test = "tests/meta/test_time.py::test_every_listed_test_is_there"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test]
    times, report = tmp_path / "times", tmp_path / "report.md"
    subprocess.run(
        [*command, "--times", times, "--report", report], cwd=ROOT, check=True, stdout=subprocess.DEVNULL
    )
    assert [taken.test for taken in read([times])] == [test]
    assert "1 passed" in report.read_text(encoding="utf-8")
