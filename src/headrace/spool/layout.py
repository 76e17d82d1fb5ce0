"""The files of a spool's folder, and the records in them.

    <folder>/origin.json               what the bytes are a stream of; see `origin`
    <folder>/lock                      held by the writing process
    <folder>/000000000007.raw          bytes as they came; byte i of segment 7 has the address base + i
    <folder>/000000000007.sums         one SUM per block of at most BLOCK bytes: address, length, CRC-32
    <folder>/000000000007.layouts      descriptions of tables that were valid at its start, then new ones
    <folder>/000000000007.places       positions of the stream by their times, where only it knows them
    <folder>/000000000007.index        RECORDs; the first is the segment's HEAD
    <folder>/000000000007-4711.*       transaction 4711, streamed while it runs: see `running_files`

An *address* counts the bytes of the spool's whole life; it never goes back. A segment belongs to one
*session*, one connection to the source: descriptions of tables die with a session, and so does a
transaction that was open when it ended (its bytes stay where they are, and no record names them).
A transaction may lie across any number of segments; its record stands in the index of the last one.

The index is the truth, and the order of writing is raw, sums, layouts, places, index: whatever the index
names is there. In every record `end` is the frontier after it, and `stop` the address behind it, and
both only grow, so that the newest record alone tells how far the stream is complete, and a binary
search finds any address. Records are numbered through the spool's life, without a gap.

    HEAD          end: frontier   start = stop: the segment's base
    TRANSACTION   time, commit_ts, transaction (its number), changes, truncates;
                  start .. stop: its bytes, first message to last
    STREAMED      as TRANSACTION, but its changes are the first `length` bytes of the files of its own that
                  were begun in segment `own`; start .. stop: the message of its commit
    PROGRESS      end: the source is complete up to here though no transaction came
"""

from __future__ import annotations

import errno
import os
import zlib
from enum import IntEnum
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.core.errors import HeadraceError, Transient

FORMAT = 4
ORIGIN = "origin.json"
BLOCK = 256 * 1024  # a small read verifies at least a whole block
SEGMENT = 64 * 1024 * 1024
INDEX_RECORDS = 64 * 1024  # 6 MB; an idle source writes records but no bytes

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]
Records = npt.NDArray[np.void]  # of dtype RECORD


class Kind(IntEnum):
    """The kind of a record of the index."""

    HEAD = 1
    TRANSACTION = 2
    PROGRESS = 3
    STREAMED = 4


RECORD = np.dtype(
    [
        ("number", "<u8"),
        ("kind", "<u4"),
        ("session", "<u4"),
        ("time", "<i8"),
        ("end", "<i8"),
        ("commit_ts", "<i8"),  # microseconds since 1970, UTC
        ("transaction", "<i8"),  # as the stream numbers it
        ("start", "<i8"),
        ("stop", "<i8"),
        ("changes", "<i8"),
        ("truncates", "<i8"),  # of those, the messages that truncate tables
        ("source_end", "<i8"),  # how far the source had got when this was written
        ("source_ts", "<i8"),  # its clock then, microseconds since 1970, UTC
        ("own", "<i8"),  # STREAMED: the segment in which it began
        ("length", "<i8"),  # STREAMED: the bytes of its own files
        ("check", "<u8"),
    ]
)

SUM = np.dtype([("address", "<i8"), ("length", "<u4"), ("crc", "<u4")])
LAYOUT = np.dtype([("address", "<i8"), ("id", "<i8"), ("length", "<u4"), ("crc", "<u4")])
PLACE = np.dtype([("time", "<i8"), ("length", "<u4"), ("crc", "<u4")])

_WORDS = RECORD.itemsize // 8
_ODD = np.array([(0x9E3779B97F4A7C15 * (2 * i + 1)) % 2**64 for i in range(_WORDS - 1)], dtype=np.uint64)


def checks(records: Records) -> npt.NDArray[np.uint64]:
    """The checksum of each record: its words mixed with odd constants, so that order counts too."""
    words = np.ascontiguousarray(records).view(np.uint64).reshape(-1, _WORDS)[:, : _WORDS - 1]
    folded = ((words ^ (words >> np.uint64(29))) * _ODD).sum(axis=1, dtype=np.uint64)
    return np.asarray(folded ^ (folded >> np.uint64(32)) ^ np.uint64(0x5EED), dtype=np.uint64)


def segment_path(folder: Path, segment: int, suffix: str) -> Path:
    return folder / f"{segment:012d}.{suffix}"


def segments(folder: Path) -> list[int]:
    """The numbers of the segments that have an index, oldest first."""
    return sorted(int(path.stem) for path in folder.glob("*.index"))


def remove_segment(folder: Path, segment: int) -> None:
    """Delete a segment, its index first: a segment without an index does not exist."""
    for suffix in ("index", "places", "layouts", "sums", "raw"):
        segment_path(folder, segment, suffix).unlink(missing_ok=True)


def discard_orphans(folder: Path) -> dict[int, int]:
    """Remove what a killed writer left of a segment without a HEAD; the sizes of the others.

    Only for the process that holds the folder's lock.
    """
    sizes: dict[int, int] = {}
    for path in folder.glob("[0-9]*.*"):
        if not path.stem.isdecimal():
            continue  # of a streamed transaction
        segment = int(path.stem)
        sizes[segment] = sizes.get(segment, 0) + path.stat().st_size
    for segment in list(sizes):
        index = segment_path(folder, segment, "index")
        if not index.exists() or index.stat().st_size < RECORD.itemsize:
            remove_segment(folder, segment)
            del sizes[segment]
    return sizes


def erase(folder: Path) -> None:
    """Forget everything that the spool holds. Only while neither a writer nor a reader uses it."""
    (folder / ORIGIN).unlink(missing_ok=True)
    for segment in segments(folder):
        remove_segment(folder, segment)
    for path in folder.glob("[0-9]*.*"):  # what a crash left of a segment without an index
        path.unlink(missing_ok=True)


def checksums(view: memoryview, address: int) -> Records:
    """The SUMs of bytes that stand at this address."""
    sums = np.empty(-(-len(view) // BLOCK), dtype=SUM)
    for i in range(len(sums)):
        block = view[i * BLOCK : (i + 1) * BLOCK]
        sums[i] = (address + i * BLOCK, len(block), zlib.crc32(block))
    return sums


def disk_error(error: OSError) -> HeadraceError:
    """Make a failed write to the spool's folder one of our errors."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return Transient(
            "SPOOL_FULL",
            "the disk of the spool is full",
            detail=f"errno {error.errno}",
            hint="free space on the driver's disk, or place the spool on a larger one",
        )
    return Transient(
        "SPOOL_UNWRITABLE",
        "the spool's folder cannot be used",
        detail=os.strerror(error.errno or 0),
        hint="let the user that runs headrace read and write the spool's folder",
    )


class SpoolSpoilt(Transient):
    """Contents of the spool are wrong or gone: it is no use, and the source sends them again."""

    codes = ("SPOOL_DAMAGED", "SPOOL_DISCARDED")


def damaged_error(what: str, segment: int) -> SpoolSpoilt:
    """The error of contents that fail their check."""
    return SpoolSpoilt(
        "SPOOL_DAMAGED",
        f"the spool's {what} fails its check",
        detail=f"segment {segment}",
        hint="nothing to do: headrace streams all of it again; if it comes back, the disk is failing",
    )


def discarded_error(where: str) -> SpoolSpoilt:
    """The error of contents that are not there any more."""
    return SpoolSpoilt(
        "SPOOL_DISCARDED",
        "something is asked for that the spool does not hold any more",
        detail=where,
        hint="restart the source: what is not in the lake is sent again",
    )
