"""Compile every kernel on all cores, before the processes that need them start side by side.

    python -m tests.kernels

Kernels are compiled when they are first imported on a machine: in a fresh clone that takes most of a minute
of a core. Lanes and their nurseries import at the same moment, and each of them would compile all of them.
If the kernels are compiled already, this takes the time of the imports.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src"
_BASE = "headrace.decode.kernel"  # all others import it, so its kernels come first


def modules() -> list[str]:
    """The modules that declare kernels, those that declare most of them first."""
    declared = {path: path.read_text(encoding="utf-8").count("\n@kernel(") for path in SOURCE.rglob("*.py")}
    found = sorted((path for path, count in declared.items() if count), key=lambda path: -declared[path])
    return [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in found]


def compile_all() -> None:
    """Import them all."""
    import_module(_BASE)
    # Forked, so that Numba is loaded once.
    with ProcessPoolExecutor(len(os.sched_getaffinity(0)), get_context("fork")) as pool:
        list(pool.map(_imported, modules()))


def _imported(name: str) -> None:
    """Import it, and give nothing back: a module does not travel between processes."""
    import_module(name)


if __name__ == "__main__":
    compile_all()
