"""`make bench`: every bench of this folder, one after the other, each in a process of its own.

A bench is a script that measures something of ours beside its peers, prints a table, and can be run alone
(`python bench/decode_rate.py`). A process of its own, so that no bench warms or slows the next one. One
that fails is named at the end, and the others still run.

    python -m bench [NAME ...]      all, or those named
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def scripts() -> dict[str, Path]:
    return {path.stem: path for path in sorted(FOLDER.glob("*.py")) if not path.stem.startswith("__")}


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
    failed = []
    for name in names:
        print(f"── {name}", flush=True)
        if subprocess.run([sys.executable, found[name]], check=False).returncode != 0:
            failed.append(name)
    if failed:
        print(f"bench: failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
