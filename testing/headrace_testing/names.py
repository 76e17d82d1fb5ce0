"""Names of hosts that a test leads elsewhere while processes run, as DNS does after a failover.

    names = Names(tmp_path, {"db.test": "127.0.0.1"})
    mirror = Mirrored(lake, url, "public.*", environment=names.environment, program=WITHOUT_SPARK)
    names.lead("db.test", "127.0.0.2")

Each Python process that starts with this environment asks the file before the system's resolver.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

_HOOK = """
import json, socket

_resolve = socket.getaddrinfo


def _of_the_test(host, *more, **options):
    with open({path!r}) as file:
        names = json.load(file)
    return _resolve(names.get(host, host), *more, **options)


socket.getaddrinfo = _of_the_test
"""


class Names:
    """The addresses of some names, and the environment of processes that are to know them."""

    def __init__(self, folder: Path, addresses: Mapping[str, str]) -> None:
        self._addresses = dict(addresses)
        self._path = folder / "names.json"
        (folder / "sitecustomize.py").write_text(_HOOK.format(path=str(self._path)))
        paths = filter(None, [str(folder), os.environ.get("PYTHONPATH")])
        self.environment = {"PYTHONPATH": os.pathsep.join(paths)}
        self._write()

    def lead(self, name: str, address: str) -> None:
        """Let a name lead to another address from now on."""
        self._addresses[name] = address
        self._write()

    def _write(self) -> None:
        """Replace the file, so that a reader never finds half of it."""
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._addresses))
        new.replace(self._path)
