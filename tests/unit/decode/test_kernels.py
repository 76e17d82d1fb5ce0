"""Kernels are compiled once, for one set of types, and stay inside of their buffers."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

import numpy as np
import pytest
from numba import types
from numba.core.registry import CPUDispatcher

from headrace import decode
from headrace.decode import copydata, pgoutput
from headrace.decode.kernel import kernel
from tests import kernels

ROOT = Path(__file__).parents[3]


def _kernels() -> dict[str, Any]:
    modules = [import_module(found.name) for found in walk_packages(decode.__path__, "headrace.decode.")]
    return {
        f"{value.py_func.__module__}.{value.py_func.__name__}": value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, CPUDispatcher)
    }


def test_every_kernel_is_compiled_for_one_set_of_types_when_it_is_imported() -> None:
    found = _kernels()
    assert len(found) > 30
    for name, made in found.items():
        assert len(made.signatures) == 1, name
        assert not made._can_compile, f"{name} may be compiled again in the middle of a stream"


def test_those_that_are_compiled_before_all_tests_are_all_that_there_are() -> None:
    declared = {made.py_func.__module__ for made in _kernels().values()}
    assert declared == {name for name in kernels.modules() if name.startswith("headrace.decode.")}
    assert "headrace.sources.mysql.stream.ordinary" in kernels.modules()


def test_kernels_take_what_is_read_only_and_what_is_not() -> None:
    frozen = np.frombuffer(b"d\0\0\0\x1f" + b"w" + bytes(24) + b"E", np.uint8)
    for data in (frozen, frozen.copy()):
        assert pgoutput.scan(data, 0, 5).tail == 0
        assert copydata.frames(data).tail == 0


def test_a_kernel_that_cannot_be_cached_is_compiled_all_the_same() -> None:
    # As on a machine where nothing can be written: there is no folder for what has no file.
    space: dict[str, Any] = {}
    exec("def double(x):\n    return 2 * x", space)  # noqa: S102
    double = kernel(types.int64, types.int64)(space["double"])
    assert double(21) == 42
    assert len(double.signatures) == 1


@pytest.mark.full
@pytest.mark.parametrize("switch", ["NUMBA_BOUNDSCHECK", "NUMBA_DISABLE_JIT"])
def test_the_laws_hold_with_every_index_checked(switch: str, tmp_path: Path) -> None:
    """Compiled code reads outside of an array without a word; with these it raises."""
    environment = os.environ | {
        switch: "1",
        "NUMBA_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": str(ROOT / "src"),
    }
    rooms = ["tests/laws/decode", "tests/cases/decode", "tests/unit/decode"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *rooms]
    command += ["--ignore", "tests/unit/decode/test_kernels.py"]
    command += ["--ignore", "tests/unit/decode/test_large_values.py"]  # it measures compiled code
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
