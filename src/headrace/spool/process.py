"""The processes that records on disk name: does the one that wrote a record still live?

A process id means one process only within one start of a machine and one namespace of ids. So a record
names those too (`this_process`), and `has_ended` is sure only of processes in ours (`is_beside`): of all
others it says nothing.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def this_process(started_at: str) -> dict[str, Any]:
    """The name of this process as an owner."""
    return {"host": socket.gethostname(), "realm": _realm(), "pid": os.getpid(), "started_at": started_at}


def is_beside(owner: Mapping[str, Any]) -> bool:
    """Tell whether the owner's process id means its process to us too."""
    return (owner.get("host"), owner.get("realm")) == (socket.gethostname(), _realm())


def has_ended(owner: Mapping[str, Any]) -> bool:
    """Tell whether the owner's process is known to be gone; False if it cannot be known here."""
    return is_beside(owner) and isinstance(owner.get("pid"), int) and not runs(owner["pid"])


def running_since() -> str:
    """Return this machine's id for the time since its last start; empty if it has none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def runs(pid: int) -> bool:
    """Tell whether this host runs a process of that number; a zombie does not run."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):  # not on Linux, or gone by now
        return False


def _realm() -> str:
    """Name the realm in which a process id means one process: this start of the machine, this container."""
    try:
        return f"{running_since()} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not on Linux: the host's name has to do
        return ""
