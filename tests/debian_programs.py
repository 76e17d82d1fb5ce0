"""Programs of Debian for tests marked `full`: of this machine, or unpacked into a cache, never installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.testing.cache import cached, server_missing
from headrace.testing.mysql import debian

SUITE = "bookworm"


def program(name: str, package: str) -> Path:
    """The program's path; what cannot be had is a failure, not a skip."""
    here = shutil.which(name)
    if here is not None:
        return Path(here)

    def fetch(into: Path) -> None:
        try:
            debian.fetch(SUITE, [package], into / "root")
        except debian.FetchError as error:
            hint = f"apt-get install {package}"
            raise server_missing(package, "it cannot be fetched", detail=str(error), hint=hint) from None

    return cached(f"debian-{package}", fetch) / "root" / "usr" / "bin" / name
