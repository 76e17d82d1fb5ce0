"""The archive of classes, with real runtimes and without Spark: the options are given to Java itself."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from headrace.spark import java
from headrace.spark.java import Archive


def _ended_well(options: str) -> bool:
    """Tell whether the packaged runtime starts with these options and ends well."""
    binary = java.likely_java({"HEADRACE_JAVA": java.PACKAGED})
    assert binary is not None
    done = subprocess.run([binary, *options.split(), "-version"], capture_output=True, check=False)
    return done.returncode == 0


def _archive(home: Path) -> Archive:
    found = Archive.of({"HEADRACE_JAVA": java.PACKAGED, "HOME": str(home)})
    assert found is not None
    return found


def test_a_runtime_without_an_archive_of_its_own_classes_gets_one_and_starts_so(tmp_path: Path) -> None:
    writing = _archive(tmp_path).options(brief=True)
    assert writing is not None
    assert _ended_well(writing)
    assert _archive(tmp_path).options(brief=True) == (reading := _archive(tmp_path).options(brief=False))
    assert reading is not None
    # Where it may not do without, Java says whether it can take them.
    assert _ended_well(reading.replace("-Xshare:auto", "-Xshare:on"))


def test_what_a_java_did_not_start_with_is_left_alone_for_a_day(tmp_path: Path) -> None:
    cache = java.cache_folder({"HOME": str(tmp_path)})
    assert cache is not None
    _archive(tmp_path).leave_alone()
    [note] = cache.iterdir()
    note.with_suffix(".jsa").touch()
    assert _archive(tmp_path).options(brief=True) is None
    yesterday = note.stat().st_mtime - 2 * 86400
    os.utime(note, (yesterday, yesterday))
    assert _archive(tmp_path).options(brief=True) is not None


@pytest.mark.parametrize("name", ["with blank", "with:colon"])
def test_a_folder_whose_name_java_would_cut_holds_no_archive(tmp_path: Path, name: str) -> None:
    assert Archive.of({"HEADRACE_JAVA": java.PACKAGED, "HOME": str(tmp_path / name)}) is None
