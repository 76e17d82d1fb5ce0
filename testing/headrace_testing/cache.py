"""The folder where programs of test servers stay, fetched once for all test runs of a machine.

`testing.binaries` keeps PostgreSQL's there, `testing.mysql` MySQL's and MariaDB's. An entry appears whole, by
a rename, or not at all: who is killed while he makes one leaves a half that the next one clears away. Two
who want the same entry at one moment make it once, under its lock file; other entries don't wait.
Nothing in here expires: remove the folder to fetch anew.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from headrace.core.errors import Misconfigured


def server_missing(server: str, why: str, *, hint: str, detail: str | None = None) -> Misconfigured:
    """The error of a server that cannot be had here."""
    return Misconfigured(
        "SERVER_MISSING", f"no {server} server for this test or demo: {why}", detail=detail, hint=hint
    )


def announce(text: str) -> None:
    """Tell whoever waits for an entry why it takes time."""
    sys.stderr.write(f"headrace: {text}\n")
    sys.stderr.flush()


def cache_folder() -> Path:
    """The folder that survives test runs, reachable for the user that a server of root's runs as."""
    named = os.environ.get("XDG_CACHE_HOME")
    wanted = (Path(named) if named else Path.home() / ".cache") / "headrace"
    if os.geteuid() == 0 and not reachable(wanted):
        wanted = Path("/var/cache/headrace")
    wanted.mkdir(mode=0o755, parents=True, exist_ok=True)
    if wanted.stat().st_uid != os.geteuid():
        raise server_missing(
            "database",
            "its cache folder belongs to another user",
            detail=str(wanted),
            hint="set XDG_CACHE_HOME to a folder of your own",
        )
    return wanted


def reachable(path: Path) -> bool:
    """Tell whether any user may look into the folder, or could if it were made."""
    return all(part.stat().st_mode & 0o001 for part in (path, *path.parents) if part.exists())


def cached(
    name: str, make: Callable[[Path], None], *, is_whole: Callable[[Path], bool] = lambda _: True
) -> Path:
    """The cache's entry of that name, made first if it is not there or no longer whole."""
    folder = cache_folder()
    entry = folder / name
    with _locked(folder / f"{name}.lock"):
        for remnant in folder.glob(f"{name}.half-*"):
            shutil.rmtree(remnant, ignore_errors=True)
        if entry.exists() and not is_whole(entry):
            announce(f'"{entry}" is not as it was made: making it anew')
            # Out of the way first: half of a broken entry may look like a whole one.
            broken = _scratch(folder, name)
            entry.rename(broken / name)
            shutil.rmtree(broken)
        if not entry.exists():
            half = _scratch(folder, name)
            try:
                make(half)
                half.chmod(0o755)
                half.rename(entry)
            finally:
                shutil.rmtree(half, ignore_errors=True)
    return entry


def _scratch(folder: Path, name: str) -> Path:
    """A folder of nobody else's: what a killed process had started may still write into its own."""
    return Path(tempfile.mkdtemp(prefix=f"{name}.half-", dir=folder))


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
