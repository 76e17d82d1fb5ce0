"""The command line in a process whose syncs are noted in a journal.

    python -m headrace_testing.sync_journal LAKE JOURNAL run --config ...

Started by `Mirrored` for tests of power cuts. Apart from `powercut`, which mirrors of tests know: the command
line knows the demo, and that knows those.
"""

from __future__ import annotations

import sys
from pathlib import Path

from headrace.cli.main import main as command
from headrace_testing.powercut import Disk


def main() -> None:
    """The command line, watched."""
    disk = Disk(Path(sys.argv[1]), Path(sys.argv[2]))
    sys.argv[1:3] = []
    with disk.watched():
        sys.exit(command())


if __name__ == "__main__":
    main()
