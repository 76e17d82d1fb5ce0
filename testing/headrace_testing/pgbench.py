"""pgbench as a workload: four tables whose balances agree at every committed state.

    sum(abalance) = sum(tbalance) = sum(bbalance) = sum(history.delta)

holds before it starts and after each of its transactions, so any cut through the tables that shows
anything else is no state of the source (`headrace_testing.validators.whole` looks for one).

The password goes to pgbench by its environment, never by its command line, which others can read.
"""

from __future__ import annotations

import os
import subprocess
import threading
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from headrace_testing.binaries import tool
from headrace_testing.wholeness import BALANCES

TABLES = tuple(BALANCES)


_FEW = """
INSERT INTO pgbench_branches (bid, bbalance) VALUES (1, 0);
INSERT INTO pgbench_tellers (tid, bid, tbalance) SELECT i, 1, 0 FROM generate_series(1, 10) i;
INSERT INTO pgbench_accounts (aid, bid, abalance, filler) SELECT i, 1, 0, '' FROM generate_series(1, {}) i;
"""

# pgbench's own transaction, but for the number of accounts: its own takes any of a hundred thousand.
_SCRIPT = r"""
\set aid random(1, :accounts)
\set tid random(1, 10)
\set delta random(-5000, 5000)
BEGIN;
UPDATE pgbench_accounts SET abalance = abalance + :delta WHERE aid = :aid;
SELECT abalance FROM pgbench_accounts WHERE aid = :aid;
UPDATE pgbench_tellers SET tbalance = tbalance + :delta WHERE tid = :tid;
UPDATE pgbench_branches SET bbalance = bbalance + :delta WHERE bid = 1;
INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES (:tid, 1, :aid, :delta, CURRENT_TIMESTAMP);
END;
"""


def pgbench_tables(url: str, *, scale: int = 1, accounts: int | None = None) -> None:
    """Make and fill the tables; history, which has no key, gets REPLICA IDENTITY FULL.

    With `accounts` of one branch there are so many, instead of a hundred thousand for each of `scale`.
    """
    steps = "dtgp" if accounts is None else "dtp"
    subprocess.run(
        [tool("pgbench"), "--initialize", f"--init-steps={steps}", "--quiet", f"--scale={scale}"],
        env=_environment(url),
        check=True,
        capture_output=True,
    )
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("ALTER TABLE pgbench_history REPLICA IDENTITY FULL")
        if accounts is not None:
            connection.execute(_FEW.format(accounts).encode())


class Pgbench:
    """pgbench in the background. It is started again when a lost connection ends it."""

    def __init__(
        self, url: str, *, clients: int = 4, rate: int | None = None, accounts: int | None = None
    ) -> None:
        self._command = [str(tool("pgbench")), "--no-vacuum", f"--client={clients}", "--time=86400"]
        if rate is not None:
            self._command.append(f"--rate={rate}")
        self._script = NamedTemporaryFile("w", suffix=".sql")  # noqa: SIM115 - until `stop`
        if accounts is not None:
            self._script.write(_SCRIPT)
            self._script.flush()
            self._command += [f"--file={self._script.name}", f"--define=accounts={accounts}"]
        self._environment = _environment(url)
        self._stopped = threading.Event()
        self._process = self._start()
        self._keeper = threading.Thread(target=self._keep, name="pgbench", daemon=True)
        self._keeper.start()

    def stop(self) -> None:
        """End it; transactions that are open are rolled back by the server."""
        self._stopped.set()
        self._process.terminate()
        self._keeper.join()
        self._script.close()

    def __enter__(self) -> Pgbench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _start(self) -> subprocess.Popen[Any]:
        return subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def _keep(self) -> None:
        while True:
            self._process.wait()
            # The pause keeps a server that is down for a while from being hammered.
            if self._stopped.wait(0.1):
                return
            self._process = self._start()
            if self._stopped.is_set():
                self._process.terminate()


def _environment(url: str) -> dict[str, str]:
    parts = conninfo_to_dict(url)
    names = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}
    given = {names[key]: str(value) for key, value in parts.items() if key in names}
    kept = {key: value for key, value in os.environ.items() if not key.startswith("PG")}
    return {**kept, **given, "PGDATABASE": str(parts["dbname"])}
