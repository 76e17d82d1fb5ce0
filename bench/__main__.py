"""`make bench`: every bench of this folder, one after the other, each in a process of its own.

A bench is a script that measures something of ours beside its peers, prints a table, and can be run alone,
with options (`python bench/decode_rate.py --rows 1000`). Its own process keeps it from warming or slowing the
next one. A bench that fails is named at the end, and the others still run.

    python -m bench [NAME ...]      all, or those named

The figures go to `bench/results/`, one file a run, with the commit and the machine's load before and after
each bench. `setup/assemble_figures.py` makes the tables of README and docs/figures.md from the newest ones.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headrace_testing.figures import VARIABLE

FOLDER = Path(__file__).parent
RESULTS = FOLDER / "results"


def scripts() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("__")}


def measured(script: Path) -> tuple[bool, dict[str, Any]]:
    """Run a bench; whether it went well, and what it measured on which load."""
    before, begun = os.getloadavg()[0], time.monotonic()
    with tempfile.NamedTemporaryFile("r", suffix=".jsonl", encoding="utf-8") as kept:
        environment = {**os.environ, VARIABLE: kept.name, "PYTHONPATH": str(FOLDER.parent)}  # for each other
        ended = subprocess.run([sys.executable, script], check=False, env=environment)
        figures = {name: value for line in kept for name, value in json.loads(line).items()}
    load = [round(before, 1), round(os.getloadavg()[0], 1)]
    return ended.returncode == 0, {
        "seconds": round(time.monotonic() - begun),
        "load": load,
        "figures": figures,
    }


def commit() -> str:
    """The commit that is measured; a plus says that files differ from it."""
    command = ["git", "-C", str(FOLDER), "describe", "--always", "--abbrev=8", "--dirty=+", "--exclude=*"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    found = scripts()
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="measure everything beside its peers"
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(found)}; all if none is given"
    )
    names = parser.parse_args().names or list(found)
    unknown = [name for name in names if name not in found]
    if unknown:
        parser.error(f"there is no bench {', '.join(unknown)}; there are {', '.join(found)}")
    now = datetime.now(UTC)
    run: dict[str, Any] = {"at": now.isoformat(timespec="seconds"), "commit": commit()}
    run |= {"cores": os.cpu_count(), "python": platform.python_version(), "benches": {}}
    failed = []
    for name in names:
        print(f"── {name}", flush=True)
        went_well, result = measured(found[name])
        if not went_well:
            failed.append(name)
        elif result["figures"]:
            run["benches"][name] = result
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / f"{now:%Y-%m-%dT%H%M}.json").write_text(json.dumps(run, indent=1) + "\n")
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
