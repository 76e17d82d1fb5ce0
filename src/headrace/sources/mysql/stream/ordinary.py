"""Ordinary transactions, many at a time: a kernel beside `transactions`, which decides everything else.

    the kernel takes  GTID BEGIN map rows map rows XID      MariaDB: GTID map rows XID
    `transactions`    everything else, event by event; it teaches the kernel the table of each map's number

Most of a binlog consists of small transactions of a few rows, and each event costs the interpreter some
microseconds. The kernel takes whole transactions whose events are valid, small and known, and the rows of an
open one. It stops before any other event, and does not judge it. So each event is judged once, there or here,
and the received bytes are the same, bit by bit (`tests/laws/sources/mysql`).

A server cuts rows into events of some kilobytes. A far larger event holds a large row. The kernel leaves it,
so that the buffer of a run need not be larger than a read.

`crc32` is the checksum of an event for kernels, equal to zlib's CRC-32:

    word        0   1   2   3   4   5   6   7   8   ...      eight bytes each
    register    a   b   c   a   b   c   a   b   c            three, which do not wait for each other

A byte's part in a checksum depends only on its value and on the number of bytes after it. So a register may
skip the words of the other two: its tables give for each byte of a word its worth three words later. At the
end the registers are joined in the order of their last words. One register waits for its tables at each word
(2 GB/s). Three registers fill that time (4 GB/s), and more gain nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from headrace.decode.kernel import Bytes, Ints, copy_bytes, input_array, kernel, output_array, several
from headrace.sources.mysql.stream import frames
from headrace.sources.mysql.stream.events import GTID, MARIADB_GTID, QUERY, TABLE_MAP, XID

_REVERSED_POLYNOMIAL = 0xEDB88320
_WORD, _REGISTERS = 8, 3  # bytes; words
_STRIDE = _WORD * _REGISTERS

_U8, _I64, _U64 = types.uint8, types.int64, types.uint64


def _tables(followed_by: int) -> npt.NDArray[np.uint32]:
    """The worth of each value of each byte of a word that so many zeros follow."""
    worth: npt.NDArray[Any] = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        worth = (worth >> 1) ^ np.where(worth & 1, np.uint32(_REVERSED_POLYNOMIAL), np.uint32(0))
    last, found = worth.copy(), np.zeros((_WORD, 256), np.uint32)
    for behind in range(followed_by + _WORD):
        if behind >= followed_by:
            found[followed_by + _WORD - 1 - behind] = worth
        worth = (worth >> 8) ^ last[worth & 255]
    return found


_NEXT = _tables(0)
_LATER = _tables(_STRIDE - _WORD)


@kernel(_U64, input_array(_U8), _U64)
def _word(data: Bytes, at: Any) -> Any:
    one = np.uint64(1)
    value = np.uint64(data[at])
    for i in range(1, 8):
        value |= np.uint64(data[at + one * np.uint64(i)]) << np.uint64(8 * i)
    return value


@kernel(_U64, _U64, input_array(types.uint32, 2))
def _worth(word: Any, tables: npt.NDArray[np.uint32]) -> Any:
    low = np.uint64(255)
    return np.uint64(
        tables[0, word & low]
        ^ tables[1, (word >> np.uint64(8)) & low]
        ^ tables[2, (word >> np.uint64(16)) & low]
        ^ tables[3, (word >> np.uint64(24)) & low]
        ^ tables[4, (word >> np.uint64(32)) & low]
        ^ tables[5, (word >> np.uint64(40)) & low]
        ^ tables[6, (word >> np.uint64(48)) & low]
        ^ tables[7, word >> np.uint64(56)]
    )


@kernel(_I64, input_array(_U8), _I64, _I64)
def crc32(data: Bytes, begin: int, end: int) -> int:
    """The checksum of `data[begin:end]`."""
    at, left = np.uint64(begin), end - begin
    word, two = np.uint64(8), np.uint64(16)
    a, b, c = np.uint64(0xFFFFFFFF), np.uint64(0), np.uint64(0)
    if left >= 2 * _STRIDE:
        while left >= 2 * _STRIDE:
            a = _worth(a ^ _word(data, at), _LATER)
            b = _worth(b ^ _word(data, at + word), _LATER)
            c = _worth(c ^ _word(data, at + two), _LATER)
            at, left = at + np.uint64(_STRIDE), left - _STRIDE
        a = _worth(a ^ _word(data, at), _NEXT)
        a = _worth(a ^ b ^ _word(data, at + word), _NEXT)
        a = _worth(a ^ c ^ _word(data, at + two), _NEXT)
        at, left = at + np.uint64(_STRIDE), left - _STRIDE
    while left >= _WORD:
        a = _worth(a ^ _word(data, at), _NEXT)
        at, left = at + word, left - _WORD
    while left > 0:
        a = (a >> word) ^ np.uint64(_NEXT[7, (a ^ np.uint64(data[at])) & np.uint64(255)])
        at, left = at + np.uint64(1), left - 1
    return int(a ^ np.uint64(0xFFFFFFFF))


LARGEST = 1 << 16  # bytes of an event
OUT = 1 << 21  # bytes that one run may write
_MARGIN = 4096  # bytes of these to keep free; a BEGIN never needs so many
_TRANSACTIONS = 1 << 13  # with rows, in one run
_SLOTS, _KEY = 1 << 10, 520  # known maps, and bytes of a map's names
_HEADER, _KIND, _SIZE, _POSITION = 19, 4, 9, 13
_BEGIN, _TEXT = frames.BEGIN, 18  # bytes of a BEGIN's body before the name
_MARIADB_ORIGIN = 8  # bytes; MySQL's has 16
_ANOTHER_WAY = 1 | 64 | 128  # flags of MariaDB: a statement alone, a prepared transaction or its end
_FREE = -1
_UNWANTED = -1

# The columns of the record of a transaction with rows.
AT, COMMIT_TS, CHANGES, START, STOP, PLACE = range(6)


@kernel(_I64, input_array(_U8), _I64)
def _u32(data: Bytes, at: int) -> int:
    return int(
        np.int64(data[at])
        | (np.int64(data[at + 1]) << 8)
        | (np.int64(data[at + 2]) << 16)
        | (np.int64(data[at + 3]) << 24)
    )


@kernel(_I64, input_array(_U8), _I64, _I64)
def _number(data: Bytes, at: int, size: int) -> int:
    value = np.int64(0)
    for i in range(size):
        value |= np.int64(data[at + i]) << (8 * i)
    return int(value)


@kernel(types.void, output_array(_U8), _I64, _I64, _I64)
def _write(out: Bytes, at: int, value: int, size: int) -> None:
    for i in range(size):
        out[at + i] = (value >> (8 * i)) & 255


@kernel(_I64, input_array(_U8), _I64, _I64, _I64)
def _sound(data: Bytes, start: int, stop: int, trailer: int) -> int:
    """Find the end of the body of a packet's event; -1 if the event is not valid, or is large."""
    begin = start + 1
    size = stop - begin
    if size < _HEADER + trailer or size > LARGEST or data[start] != 0 or _u32(data, begin + _SIZE) != size:
        return -1
    if trailer and crc32(data, begin, stop - trailer) != _u32(data, stop - trailer):
        return -1
    return stop - trailer


@kernel(_I64, _I64, input_array(_I64))
def _slot(number: int, ids: Ints) -> int:
    """Find the slot of a map by its number; -1 if it is not known."""
    slot = number % len(ids)
    while ids[slot] != -1:
        if ids[slot] == number:
            return int(slot)
        slot = (slot + 1) % len(ids)
    return -1


@kernel(_I64, input_array(_U8), _I64, _I64, input_array(_I64), input_array(_I64), input_array(_U8, 2))
def _find_map(data: Bytes, body: int, end: int, ids: Ints, lengths: Ints, keys: Bytes) -> int:
    """Find the slot of a known map with the same number and names; -1 if there is none."""
    if end - body < 9:
        return -1
    slot = _slot(_number(data, body, 6), ids)
    if slot < 0 or end - body - 8 < lengths[slot]:
        return -1
    for i in range(lengths[slot]):
        if data[body + 8 + i] != keys[slot, i]:
            return -1
    return slot


@kernel(_I64, input_array(_U8), _I64, _I64, _I64, output_array(_U8), _I64)
def _copy(data: Bytes, begin: int, end: int, trailer: int, out: Bytes, used: int) -> int:
    """Write an event as a frame; return its end."""
    copy_bytes(data, begin, end, out, used)
    if trailer:
        _write(out, used + _SIZE, end - begin, 4)
    return used + end - begin


_PACKETS = (
    input_array(_U8),
    input_array(_I64),
    input_array(_I64),
    _I64,
    _I64,
)  # the first packet, and the bytes of a checksum
_KNOWN = (
    _I64,
    input_array(_I64),
    input_array(_I64),
    input_array(_U8, 2),
    input_array(_I64),
    output_array(_I64),
)  # the transaction; maps
_WRITTEN = (output_array(_U8), output_array(_U8))  # the tables that get rows, and the output


@kernel(several(_I64, _I64, _I64, _I64), *_PACKETS, *_KNOWN, *_WRITTEN, _I64)
def _rows(
    data: Bytes,
    starts: Ints,
    stops: Ints,
    first: int,
    trailer: int,
    transaction: int,
    ids: Ints,
    lengths: Ints,
    keys: Bytes,
    wanted: Ints,
    described: Ints,
    touched: Bytes,
    out: Bytes,
    used: int,
) -> tuple[int, int, int, int]:
    """Take maps and rows of a transaction, up to a packet that is neither.

    Returns that packet, the end of the output, the number of row events, and the first map whose rows have
    not come (-1 if there is none).
    """
    at, changes, waiting = first, 0, -1
    while at < len(starts):
        begin, end = starts[at] + 1, _sound(data, starts[at], stops[at], trailer)
        if end < 0:
            break
        kind, body = data[begin + _KIND], begin + _HEADER
        if kind == TABLE_MAP:
            slot = _find_map(data, body, end, ids, lengths, keys)
            if slot < 0:
                break
            described[slot] = transaction
            if waiting < 0 and wanted[slot] >= 0:
                waiting = at
        elif (23 <= kind <= 25 or 30 <= kind <= 32) and end - body >= 8:
            slot = _slot(_number(data, body, 6), ids)
            if slot < 0 or described[slot] != transaction:
                break
            if wanted[slot] >= 0:
                if used + stops[at] - starts[waiting if waiting >= 0 else at] > len(out):
                    break
                while 0 <= waiting < at:
                    place, until = starts[waiting] + 1, stops[waiting] - trailer
                    if (
                        data[place + _KIND] == TABLE_MAP
                        and wanted[_slot(_number(data, place + _HEADER, 6), ids)] >= 0
                    ):
                        used = _copy(data, place, until, trailer, out, used)
                    waiting += 1
                waiting = -1
                used = _copy(data, begin, end, trailer, out, used)
                touched[wanted[slot]] = 1
                changes += 1
        else:
            break
        at += 1
    return at, used, changes, waiting


@kernel(_I64, input_array(_U8), input_array(_I64), input_array(_I64), _I64, _I64)
def _behind_begin(data: Bytes, starts: Ints, stops: Ints, at: int, trailer: int) -> int:
    """The packet after the statement BEGIN; -1 if the packet is no BEGIN."""
    begin, end = starts[at] + 1, _sound(data, starts[at], stops[at], trailer)
    if end < 0 or data[begin + _KIND] != QUERY or end - begin < 32:
        return -1
    body = begin + _HEADER
    text = body + 13 + _number(data, body + 11, 2) + np.int64(data[body + 8]) + 1
    if end - text != 5:
        return -1
    fits = data[text] == 66 and data[text + 1] == 69 and data[text + 2] == 71
    return at + 1 if fits and data[text + 3] == 73 and data[text + 4] == 78 else -1


@kernel(
    several(_I64, _I64, _I64),
    input_array(_U8),
    input_array(_I64),
    input_array(_I64),
    _I64,
    _I64,
    input_array(_U8),
    _I64,
)
def _find_start(
    data: Bytes, starts: Ints, stops: Ints, at: int, trailer: int, origin: Bytes, number: int
) -> tuple[int, int, int]:
    """The start of a transaction with this name: the packet after it, its time, its place in the log.

    The packet is -1 if the transaction begins in another way. MySQL's origin has 16 bytes, MariaDB's 8.
    """
    nothing = (-1, 0, 0)
    if at + 1 >= len(starts):
        return nothing
    begin, end = starts[at] + 1, _sound(data, starts[at], stops[at], trailer)
    if end < 0:
        return nothing
    body, kind = begin + _HEADER, data[begin + _KIND]
    place = _u32(data, begin + _POSITION) - _u32(data, begin + _SIZE)
    if place <= 0:
        return nothing
    if len(origin) == _MARIADB_ORIGIN:
        if (
            kind != MARIADB_GTID
            or end - body < 13
            or data[body + 12] & _ANOTHER_WAY
            or _number(data, body, 8) != number
        ):
            return nothing
        for i in range(4):
            if data[body + 8 + i] != origin[i] or data[begin + 5 + i] != origin[4 + i]:
                return nothing
        return at + 1, _u32(data, begin) * 1000000, place
    if kind != GTID or end - body < 56 or _number(data, body + 17, 8) != number:
        return nothing
    for i in range(16):
        if data[body + 1 + i] != origin[i]:
            return nothing
    immediate = _number(data, body + 42, 7)
    if immediate >> 55:
        immediate = _number(data, body + 49, 7)
    return _behind_begin(data, starts, stops, at + 1, trailer), immediate & ((1 << 55) - 1), place


@kernel(_I64, input_array(_U8), _I64, _I64, _I64, input_array(_U8), _I64, output_array(_U8), _I64)
def _begin(
    data: Bytes, event: int, time: int, commit_ts: int, prefix: Bytes, number: int, out: Bytes, used: int
) -> int:
    """Write the BEGIN of a transaction, as `frames.begin` makes it; return its end."""
    digits, rest = 1, number
    while rest >= 10:
        digits, rest = digits + 1, rest // 10
    length = len(prefix) + digits
    for i in range(_HEADER):
        out[used + i] = data[event + i]
    body = used + _HEADER
    out[used + _KIND] = _BEGIN
    _write(out, used + _SIZE, _HEADER + _TEXT + length, 4)
    _write(out, used + _POSITION, 0, 4)
    _write(out, body, time, 8)
    _write(out, body + 8, commit_ts, 8)
    _write(out, body + 16, length, 2)
    for i in range(len(prefix)):
        out[body + _TEXT + i] = prefix[i]
    for i in range(digits):
        out[body + _TEXT + length - 1 - i] = 48 + number % 10
        number //= 10
    return body + _TEXT + length


@kernel(_I64, input_array(_U8), input_array(_I64), input_array(_I64), _I64)
def _end(data: Bytes, starts: Ints, stops: Ints, first: int) -> int:
    """The packet that ends the transaction which begins with this packet, by kinds and sizes alone.

    A transaction is taken only if its end is here. If packet n stands in the way, the result is -n - 1.
    """
    for at in range(first + 1, len(starts)):
        size = stops[at] - starts[at]
        kind = data[starts[at] + 1 + _KIND] if size > _HEADER else 0
        if kind == XID:
            return int(at)
        if size > LARGEST or not (kind in (TABLE_MAP, QUERY) or 23 <= kind <= 32):
            return -int(at) - 1
    return -len(starts) - 1


@kernel(
    several(_I64, _I64, _I64, _I64, _I64, _I64, _I64),
    *_PACKETS, *_KNOWN, *_WRITTEN, _I64, input_array(_U8), input_array(_U8), _I64, _I64,
    output_array(_I64, 2),
)  # fmt: skip
def _whole(
    data: Bytes,
    starts: Ints,
    stops: Ints,
    first: int,
    trailer: int,
    transaction: int,
    ids: Ints,
    lengths: Ints,
    keys: Bytes,
    wanted: Ints,
    described: Ints,
    touched: Bytes,
    out: Bytes,
    most: int,
    origin: Bytes,
    prefix: Bytes,
    number: int,
    time: int,
    records: Ints,
) -> tuple[int, int, int, int, int, int, int]:
    """Take whole transactions with consecutive numbers, until so much is written.

    Returns the packet after them, their number, the number of those with rows, the end of the output, the
    packet to examine singly, and the time and place of the last transaction.
    """
    at, count, written, used, stopped = first, 0, 0, 0, first
    commit_ts, place = 0, 0
    while written < len(records) and used < most and used + _MARGIN <= len(out):
        last = _end(data, starts, stops, at) if at < len(starts) else -at - 1
        if last < 0:
            stopped = -last - 1
            break
        stopped = at
        inner, its_ts, its_place = _find_start(data, starts, stops, at, trailer, origin, number + count)
        if inner < 0:
            break
        begun = _begin(data, starts[at] + 1, time + 8 * count, its_ts, prefix, number + count, out, used)
        stopped, end, changes, _ = _rows(
            data, starts, stops, inner, trailer, transaction + count,
            ids, lengths, keys, wanted, described, touched, out, begun,
        )  # fmt: skip
        if stopped != last or _sound(data, starts[last], stops[last], trailer) < 0:
            break
        if changes:
            records[written, 0], records[written, 1], records[written, 2] = count, its_ts, changes
            records[written, 3], records[written, 4], records[written, 5] = used, end, its_place
            used, written = end, written + 1
        commit_ts, place = its_ts, its_place
        at, count = last + 1, count + 1
    return at, count, written, used, stopped, commit_ts, place


@dataclass(frozen=True, slots=True)
class ReadPackets:
    """The packets of a read from `first` on: each is an event, with a checksum of so many bytes."""

    data: Bytes
    starts: Ints
    stops: Ints
    first: int
    trailer: int

    def is_end(self, at: int) -> bool:
        """Tell whether a transaction ends with this packet, or the packets end before it."""
        if at == len(self.starts):
            return True
        kind = int(self.starts[at]) + 1 + _KIND
        return kind < int(self.stops[at]) and int(self.data[kind]) == XID


@dataclass(frozen=True, slots=True)
class FirstTransaction:
    """The first transaction of a run: the bytes of its origin, its name up to the number, its own time."""

    origin: bytes
    prefix: bytes
    number: int
    time: int


@dataclass(frozen=True, slots=True)
class TransactionRun:
    """Whole transactions that the kernel took."""

    behind: int  # the packet after them
    stopped_at: int  # the packet to examine singly
    count: int
    written_at: Ints  # a record for each with rows: see `AT` and the other columns
    data: Bytes
    newest: tuple[int, int]  # time and place of the last one


@dataclass(frozen=True, slots=True)
class Rows:
    """Maps and rows of an open transaction that the kernel took."""

    behind: int
    changes: int
    data: Bytes
    touched_tables: list[int]  # the tables, by their numbers
    map_tables: list[tuple[bytes, int]]  # maps by number, and their tables; -1: not wanted


class OrdinaryReader:
    """The kernel, with the table of each known map's number."""

    def __init__(self, tables: Collection[object]) -> None:
        self._ids: Ints = np.full(_SLOTS, _FREE, np.int64)
        self._lengths: Ints = np.zeros(_SLOTS, np.int64)
        self._keys: Bytes = np.zeros((_SLOTS, _KEY), np.uint8)
        self._wanted: Ints = np.full(_SLOTS, _UNWANTED, np.int64)
        self._described: Ints = np.zeros(_SLOTS, np.int64)
        self._touched: Bytes = np.zeros(max(1, len(tables)), np.uint8)
        self._transaction = 1  # the number of the current transaction
        self._learned: dict[bytes, tuple[bytes, int]] = {}  # the names and slot of each number
        self._out: Bytes = np.empty(OUT, np.uint8)
        self._records: Ints = np.empty((_TRANSACTIONS, 6), np.int64)

    def begin(self) -> None:
        """Note that another transaction begins."""
        self._transaction += 1

    def learn(self, number: bytes, key: bytes, table: int | None) -> None:
        """Note a map of the open transaction: its number, its names, and its wanted table or None."""
        if self._learned.get(number, (b"", 0))[0] != key:
            if len(self._learned) * 2 > _SLOTS:
                self._learned.clear()
                self._ids.fill(_FREE)
            self._learned[number] = key, self._place(number, key, table)
        self._described[self._learned[number][1]] = self._transaction

    def _place(self, number: bytes, key: bytes, table: int | None) -> int:
        """Store a map; return its slot."""
        wanted = int.from_bytes(number, "little")
        slot = wanted % _SLOTS
        while self._ids[slot] not in (_FREE, wanted):
            slot = (slot + 1) % _SLOTS
        self._ids[slot], self._lengths[slot] = wanted, len(key)
        self._keys[slot, : len(key)] = np.frombuffer(key, np.uint8)
        self._wanted[slot] = _UNWANTED if table is None else table
        return slot

    def whole(self, packets: ReadPackets, first: FirstTransaction, most: int) -> TransactionRun:
        """Take transactions from the first on, until so many bytes are written."""
        origin, prefix = (np.frombuffer(each, np.uint8) for each in (first.origin, first.prefix))
        asked = (most, origin, prefix, first.number, first.time, self._records)
        behind, count, written, used, stopped, *newest = _whole(*(*self._arguments(packets), *asked))
        self._transaction += count + 1
        self._touched.fill(0)
        return TransactionRun(
            behind, stopped, count, self._records[:written], self._out[:used], (newest[0], newest[1])
        )

    def rows(self, packets: ReadPackets) -> Rows:
        """Take maps and rows of the open transaction."""
        before = self._described.copy()
        behind, used, changes, waiting = _rows(*(*self._arguments(packets), 0))
        described = [
            (int(self._ids[slot]).to_bytes(6, "little"), int(self._wanted[slot]))
            for slot in np.flatnonzero(self._described != before).tolist()
        ]
        touched = np.flatnonzero(self._touched).tolist()
        self._touched[touched] = 0
        if waiting >= 0:
            behind = waiting
        return Rows(behind, changes, self._out[:used], touched, described)

    def _arguments(self, packets: ReadPackets) -> tuple[Any, ...]:
        known = (self._ids, self._lengths, self._keys, self._wanted, self._described)
        of = (packets.data, packets.starts, packets.stops, packets.first, packets.trailer)
        return (*of, self._transaction, *known, self._touched, self._out)
