"""Run all that our documents show: each block that a page marks with `<!-- run -->`, and each notebook.

The blocks of a page run in one folder, one after the other, as a reader types them: bash and Python, with
`SHOP` the address of an empty database. Spark starts in each command, so this takes minutes: `full`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from headrace_testing.binaries import locate
from headrace_testing.postgres import Database
from setup.run_notebooks import NOTEBOOKS, run
from tests.meta.tracked import ROOT, files, relative

DEADLINE = 800.0  # a page may wait for a run, and the run may have died
_BLOCK = re.compile(r"^<!-- run -->\n```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PAGES = tuple(path for path in files() if path.suffix == ".md" and "<!-- run -->" in path.read_text("utf-8"))


def script(page: str) -> str:
    """The marked blocks as one script, which ends at the first that fails."""
    blocks = _BLOCK.findall(page)
    assert len(blocks) == page.count("<!-- run -->"), "a mark is followed by a block of bash or python"
    typed = [text if kind == "bash" else f"python - <<'PYTHON'\n{text}PYTHON\n" for kind, text in blocks]
    return "\n".join(["set -euo pipefail", *typed])


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_the_blocks_of_a_page_run_as_they_stand(page: Path, database: Database, tmp_path: Path) -> None:
    tools = [Path(sys.executable).parent, locate("18").bin, *os.environ["PATH"].split(os.pathsep)]
    done = subprocess.run(
        ["bash"],
        input=script(page.read_text("utf-8")),
        cwd=tmp_path,
        env=os.environ | {"SHOP": database.url(), "PATH": os.pathsep.join(map(str, tools))},
        capture_output=True,
        text=True,
        check=False,
        timeout=DEADLINE,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.full
@pytest.mark.spark
@pytest.mark.server
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=relative)
def test_a_notebook_runs_from_its_first_cell_to_its_last(notebook: Path) -> None:
    run(notebook)


def test_the_marks_and_the_notebooks_are_there() -> None:
    assert ROOT / "docs" / "start.md" in PAGES
    assert [path.stem for path in NOTEBOOKS] == [
        "dashboard",
        "first-mirror",
        "scd2-from-history",
        "time-travel",
    ]


def test_a_block_that_fails_fails_its_page(tmp_path: Path) -> None:
    text = "<!-- run -->\n```python\nraise SystemExit(3)\n```\n<!-- run -->\n```bash\ntouch reached\n```\n"
    assert subprocess.run(["bash"], input=script(text), cwd=tmp_path, text=True, check=False).returncode == 3
    assert not (tmp_path / "reached").exists()
