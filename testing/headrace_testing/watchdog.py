"""The shell that ends a server of a test and removes its folder when the test run is gone.

A test run that is killed cannot clean up. The watchdog waits on a pipe of which only the test's process holds
the other end: when that is gone, however it went, the pipe closes. (The kernel's parent-death signal is no
way to do this: it fires when the *thread* that started the server ends, and a nemesis restarts servers
from threads.)
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

# $1 is the server's folder, $2 the file that begins with its process id, $3 the signal. A process id may have
# been given to somebody else meanwhile: only one whose working directory is our data folder is ours.
_WATCHDOG = """
read -r _
pid=$(head -n 1 "$2" 2>/dev/null)
ours() { [ -n "$pid" ] && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; }
n=0
ours "$1" && kill "-$3" "$pid" && kill -CONT "$pid"
while ours "$1" && [ $n -lt 200 ]; do sleep 0.05; n=$((n + 1)); done
ours "$1" && kill -KILL "$pid"
rm -rf "$1"
"""


def start_watchdog(folder: Path, pid_file: Path, number: signal.Signals) -> subprocess.Popen[bytes]:
    """Watch over the server whose data folder is `folder/data`; close its standard input when it is ended."""
    return subprocess.Popen(
        ["/bin/sh", "-c", _WATCHDOG, "headrace-watchdog", str(folder), str(pid_file), str(int(number))],
        cwd="/",
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
