"""The wheel, as somebody else's Spark meets it: built, installed outside the checkout, run.

Quick, and without an index: the new environment sees the locked dependencies through a path file that
leads to ours (which does not bring our editable install along), and pip installs the wheel
alone. `setup/wheel-check`, which CI runs, does the same with the wheel's own dependencies
downloaded. Our environment has PySpark; "there is none" is played by an import that fails.
"""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

import headrace

CHECKOUT = Path(__file__).resolve().parents[2]
NEEDED = ("pyproject.toml", "README.md", "LICENSE")


def _run(*command: str | Path, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves files behind that would get into the next one."""
    copy = tmp_path_factory.mktemp("wheel")
    shutil.copytree(
        CHECKOUT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info")
    )
    for name in NEEDED:
        shutil.copy(CHECKOUT / name, copy)
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", cwd=copy)
    (built,) = (copy / "dist").glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment that holds nothing but the wheel and its dependencies."""
    place = tmp_path_factory.mktemp("elsewhere")
    _run(sys.executable, "-m", "venv", "--without-pip", place / "venv", cwd=place)
    python = place / "venv" / "bin" / "python"
    _run(
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--no-deps",
        "--no-index",
        wheel,
        cwd=place,
    )
    (packages,) = (place / "venv" / "lib").glob("python*/site-packages")
    (packages / "locked.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python.parent


def _metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_the_installed_program_tells_its_version(installed: Path, tmp_path: Path) -> None:
    assert _run(installed / "headrace", "--version", cwd=tmp_path) == f"headrace {headrace.__version__}\n"


def test_the_wheel_runs_where_there_is_no_spark(installed: Path, tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['pyspark'] = None; "
        "import headrace; print(headrace.Lake.__module__, headrace.__file__)"
    )
    module, _, file = _run(installed / "python", "-c", program, cwd=tmp_path).strip().partition(" ")
    assert module == "headrace.lake.read.lake"
    assert Path(file).is_relative_to(installed.parent)


def test_plain_headrace_pins_no_spark(wheel: Path) -> None:
    required = _metadata(wheel).get_all("Requires-Dist", [])
    assert [text for text in required if "spark" in text.lower() and "extra ==" not in text] == []
    assert any(text.startswith("pyspark") and 'extra == "local"' in text for text in required)


def test_the_wheel_holds_our_packages_the_licence_and_the_types(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
    assert tops == {"headrace", "pyspark_headrace"}
    assert "headrace/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
