"""Run the Spark tests on the older versions of PySpark that headrace takes: 4.0, the oldest, 4.1 and 4.2.

PySpark alone is installed into a folder that comes first on the path; all else is this environment's.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[3]
_CASES = {
    "tests/integration/spark/test_jobs.py": ["-k", "local or connect"],
    "tests/integration/spark/source": ["-m", "not full"],
}


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("version", ["4.0", "4.1", "4.2"])
def test_jobs_and_the_data_source_behave_the_same_on_older_versions(version: str, tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path)]
    subprocess.run([*install, f"pyspark=={version}.*", "py4j==0.10.9.9"], check=True)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    environ["PYTHONPATH"] = str(tmp_path)
    found = subprocess.run(
        [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"],
        env=environ,
        check=True,
        capture_output=True,
        text=True,
    )
    assert found.stdout.startswith(version)
    for cases, chosen in _CASES.items():
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *chosen, str(_ROOT / cases)],
            env=environ,
            cwd=_ROOT,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-6000:]
