"""Functions that the tests send to Spark's workers: by reference, so they live in a module of their own."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import polars
import pyarrow as pa
from pyarrow import parquet

from headrace.core.errors import Definite
from headrace.spark import paths
from headrace.spark.depot import receive_shared
from headrace.spark.secrets import Key, SealedSecret
from headrace.spark.worker import Merge
from headrace_testing import postmaster

__all__ = ["Merge"]


def echo(item: bytes) -> bytes:
    """The item."""
    return item


def shout(suffix: bytes, item: bytes) -> bytes:
    """For a partial: the item with a suffix."""
    return item.upper() + suffix


def niceness(item: bytes) -> bytes:
    """By how much the thread of the task steps back behind others."""
    return b"%d" % os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def policy(item: bytes) -> bytes:
    """The number of the policy by which Linux gives the thread of the task a processor."""
    return b"%d" % os.sched_getscheduler(threading.get_native_id())


def threads() -> list[tuple[str, int]]:
    """The threads of this process: what each is called, and by how much it steps back behind others."""
    found = [Path("/proc/self/task", number) for number in os.listdir("/proc/self/task")]
    return [
        (each.joinpath("comm").read_text().strip(), os.getpriority(os.PRIO_PROCESS, int(each.name)))
        for each in found
        if each.exists()
    ]


def use_libraries(item: bytes) -> bytes:
    """Have the libraries work in as many threads as they like."""
    polars.DataFrame({"a": list(range(100_000))}).lazy().sort("a").collect()
    sink = pa.BufferOutputStream()
    parquet.write_table(pa.table({f"c{number}": [number] for number in range(64)}), sink)
    parquet.read_table(pa.BufferReader(sink.getvalue()))
    return item


def through(function: Callable[[bytes], bytes], item: bytes) -> bytes:
    """For a partial that carries another function."""
    return function(item)


def one_blob(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """The item, into one group with all others."""
    yield "all", 0, item


def whole(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """All blobs of the group as one."""
    yield b"".join(blobs)


def length_of_shared(item: bytes) -> bytes:
    """Return the length of the bytes that an item stands for."""
    return str(len(receive_shared(item))).encode()


def several(item: bytes) -> list[bytes]:
    """Return as many results as the item says."""
    return [item + b"." + str(part).encode() for part in range(int(item))]


def who(item: bytes) -> bytes:
    """The worker's process, after long enough that another worker takes the next item."""
    time.sleep(float(item))
    return str(os.getpid()).encode()


def refuse(item: bytes) -> bytes:
    """One of our errors for one of the items."""
    if item == b"bad":
        raise Definite("TEST_REFUSED", "no", detail="a table", hint="do nothing")
    return item


def stumble(item: bytes) -> bytes:
    """A bug, whose message and locals hold a value of a row."""
    value = item.decode()
    raise ValueError(f"cannot convert {value}")


def exhaust(item: bytes) -> bytes:
    """A task that is out of memory."""
    raise MemoryError


def die_once(folder: str, item: bytes) -> bytes:
    """Kills its own worker at the first attempt at item "die", in the middle of the task."""
    seen = Path(folder, item.decode())
    attempts = len(list(Path(folder).glob(seen.name + "*")))
    seen.with_suffix(f".{attempts}").touch()
    if item == b"die" and attempts == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def die(item: bytes) -> bytes:
    """Kills its own worker at every attempt."""
    os.kill(os.getpid(), signal.SIGKILL)
    return item


def blow_up(item: bytes) -> bytes:
    """Return as many bytes as the item says."""
    return bytes(int(item))


def length(item: bytes) -> bytes:
    """The item's size."""
    return str(len(item)).encode()


def unseal(key: Key, item: bytes) -> bytes:
    """The length of the secret, which proves that it was read, and tells nothing."""
    return str(len(SealedSecret(item).open(key))).encode()


def by_letter(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """One blob a letter; the order runs backwards through the item."""
    for position, letter in enumerate(item.decode()):
        yield letter, -position, item + str(position).encode()


def refuse_split(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Half of the blobs, then an error."""
    yield from by_letter(item)
    refuse(item)


def joined(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """All blobs of a group, in the order in which they came."""
    yield group.encode() + b":" + b",".join(blobs)


def first_only(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """Reads one blob and leaves the rest."""
    yield group.encode() + b":" + next(blobs)


def refuse_merge(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """An error in one group."""
    yield next(blobs)
    if group == "b":
        raise Definite("TEST_MERGE_REFUSED", "no", hint="do nothing")


def megabytes(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Two megabytes for each of ten groups."""
    for group in range(10):
        yield str(group), int(item), bytes([int(item)]) * (2 << 20)


def leave_trace(folder: str, group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """A file for each group that is merged."""
    Path(folder, group).touch()
    return blobs


def one_group(item: bytes) -> Iterator[tuple[str, int, bytes]]:
    """Forty megabytes in blobs of two, all of one group."""
    for order in range(20):
        yield "all", order, bytes(2 << 20)


def weigh_memory(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """All bytes, and by how much the worker's peak of resident memory grew over them."""
    total = len(next(blobs))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    total += sum(len(blob) for blob in blobs)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    yield f"{total} {grown << 10}".encode()


def weigh(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """Count the blobs of a group, and their bytes."""
    sizes = [len(blob) for blob in blobs]
    yield f"{group} {len(sizes)} {sum(sizes)}".encode()


def write_apart(driver: int, root: str, name: str, data: bytes) -> None:
    """Writes into one folder in the driver and into another in tasks: a path that is not shared."""
    paths.local_probe(_folder(driver, root)).write(name, data)


def read_apart(driver: int, root: str, name: str) -> bytes | None:
    """Reads likewise."""
    return paths.local_probe(_folder(driver, root)).read(name)


def _folder(driver: int, root: str) -> Path:
    return Path(root, "driver" if os.getpid() == driver else "task")


def wait_for(condition: Callable[[], bool], seconds: float = 30.0) -> None:
    """Return once the condition holds; fail at the deadline."""
    postmaster.wait_for(condition, "the condition", deadline=seconds)


def wait_for_leave(folder: str, item: bytes) -> bytes:
    """Says that it began, and ends once the file that the item names is there."""
    Path(folder, f"begun-{os.getpid()}-{time.monotonic_ns()}").touch()
    wait_for(Path(folder, item.decode()).exists, 60.0)
    return item


def seen_by_the_collector(item: bytes) -> bytes:
    """The objects that a collection looks through, and those that it leaves alone."""
    return f"{len(gc.get_objects())} {gc.get_freeze_count()}".encode()
