"""The proof that executors and driver see the same lake.

A lake in `./lake` is on the driver's disk; executors on other machines would write their files to
their own disks, the driver would commit names of files that nobody else can read, and only a reader
would notice. So a probe looks first, both ways:

    driver writes a file ──► every task reads it          (else: executors would copy into nothing)
    every task writes one ──► the driver reads it          (else: the driver would commit nothing)

Each file has a new name, so that no cache (NFS keeps "there is no such file" for a while) can answer
for it, and holds a random token, so that a file of the same name elsewhere cannot. The files are removed
afterwards, whatever the result.

Object stores need the proof, too (executors' credentials may not allow writing to a bucket). So the caller
passes the functions that read and write, which travel to tasks.
"""

from __future__ import annotations

import json
import platform
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from headrace.core.errors import Misconfigured
from headrace.spark.jobs import Jobs


@dataclass(frozen=True)
class Probe:
    """The functions that reach the lake; each is one of a module or a partial of one.

    `read` gives None for a file that is not there; `remove` of one that is not there is no error.
    """

    where: str
    write: Callable[[str, bytes], None]
    read: Callable[[str], bytes | None]
    remove: Callable[[str], None]


def local_probe(root: Path) -> Probe:
    """The probe of a lake in a directory."""
    at = str(root)
    return Probe(at, partial(_write, at), partial(_read, at), partial(_remove, at))


def prove_shared(jobs: Jobs, tasks: int, probe: Probe, prefix: str = "_headrace/probe") -> None:
    """Returns if driver and executors see each other's files; raises with the host that does not."""
    token = secrets.token_hex(16)
    own = f"{prefix}-{token}"
    theirs = [f"{own}-{task}" for task in range(tasks)]
    try:
        probe.write(own, token.encode())
        items = [json.dumps({"own": own, "theirs": name, "token": token}).encode() for name in theirs]
        answers = [json.loads(raw) for raw in jobs.run(partial(_look, probe.read, probe.write), items)]
        trouble = [_trouble(probe, name, token, answer) for name, answer in zip(theirs, answers, strict=True)]
    finally:
        for name in (own, *theirs):
            probe.remove(name)
    found = next(filter(None, trouble), None)
    if found is not None:
        # What tasks left on their own disks; as far as the same hosts get the work again.
        jobs.run(partial(_forget, probe.remove), [name.encode() for name in theirs])
        raise not_shared_error(probe.where, found)


def not_shared_error(where: str, detail: str) -> Misconfigured:
    """The error where a machine does not see the lake that another one sees."""
    return Misconfigured(
        "SPARK_LAKE_NOT_SHARED",
        f'executors and driver do not share the lake "{where}"',
        detail=detail,
        hint="put the lake on a file system that all machines mount at the same path, or in a bucket",
    )


def _trouble(probe: Probe, name: str, token: str, answer: dict[str, str | bool]) -> str | None:
    if not answer["sees"]:
        return f'host "{answer["host"]}" does not see the driver\'s file'
    if probe.read(name) != token.encode():
        return f'the driver does not see a file of host "{answer["host"]}"'
    return None


def _look(read: Callable[[str], bytes | None], write: Callable[[str, bytes], None], item: bytes) -> bytes:
    """Runs in a worker: looks for the driver's file and leaves one of its own."""
    asked = json.loads(item)
    sees = read(asked["own"]) == asked["token"].encode()
    write(asked["theirs"], asked["token"].encode())
    return json.dumps({"host": platform.node(), "sees": sees}).encode()


def _forget(remove: Callable[[str], None], item: bytes) -> bytes:
    remove(item.decode())
    return b""


def _write(root: str, name: str, data: bytes) -> None:
    path = Path(root, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def _read(root: str, name: str) -> bytes | None:
    try:
        return Path(root, name).read_bytes()
    except FileNotFoundError:
        return None


def _remove(root: str, name: str) -> None:
    Path(root, name).unlink(missing_ok=True)
