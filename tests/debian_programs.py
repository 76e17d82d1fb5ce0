"""Programs of Debian for tests marked `full`: of this machine, or unpacked into a cache, never installed."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace_testing.cache import cached, server_missing
from headrace_testing.mysql import debian

SUITE = "bookworm"


def program(name: str, package: str, folder: str = "usr/bin") -> Path:
    """The program's path, in the package's `folder`; what cannot be had is a failure, not a skip."""
    here = shutil.which(name)
    if here is not None:
        return Path(here)

    def fetch(into: Path) -> None:
        try:
            debian.fetch(SUITE, [package], into / "root")
        except debian.FetchError as error:
            hint = f"apt-get install {package}"
            raise server_missing(package, "it cannot be fetched", detail=str(error), hint=hint) from None

    return cached(f"debian-{package}", fetch) / "root" / folder / name


def libraries(program: Path) -> dict[str, str]:
    """The variable by which an unpacked program finds its libraries; nothing for one of this machine."""
    root = next((each for each in program.parents if each.name == "root" and "debian-" in str(each)), None)
    if root is None:
        return {}
    found = {str(each.parent) for each in root.glob("**/lib*.so.*")}
    return {"LD_LIBRARY_PATH": ":".join(sorted(found))}
