"""Twin of `copydata` and of `pgoutput.framing`: frames and messages by `struct`, one after the other."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_KINDS = b"123ACDEGHIKNRSTVWZcdnstv"
_LONGEST = 2**30 + 4

# Kind: the layout of its fixed part, as the manual lists it (strings have at least their final zero).
_LAYOUTS = {
    b"B": ">qqI",
    b"C": ">Bqqq",
    b"O": ">q1s",
    b"R": ">I1s1s1sH",
    b"Y": ">I1s1s",
    b"I": ">I1sH",
    b"U": ">I1sH",
    b"D": ">I1sH",
    b"T": ">IB",
    b"M": ">Bq1sI",
    b"S": ">IB",
    b"E": "",
    b"c": ">IBqqq",
    b"A": ">II",
    b"b": ">qqqI1s",
    b"P": ">BqqqI1s",
    b"p": ">BqqqI1s",
    b"K": ">BqqqI1s",
    b"r": ">BqqqqI1s",
}


class MalformedFrame(Exception):
    """The bytes are no frame or no message: what, in one word, and the frame's place."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message, as `pgoutput.framing.Messages` has it in arrays."""

    frame_start: int
    start: int
    body: int
    stop: int
    kind: int
    relation: int
    xid: int


def frames(data: bytes) -> tuple[list[tuple[int, int, int]], int, bool]:
    """(start, stop, kind) of each complete frame, where the tail begins, and whether it is malformed."""
    found: list[tuple[int, int, int]] = []
    at = 0
    while at + 5 <= len(data):
        kind, length = struct.unpack_from(">BI", data, at)
        if kind not in _KINDS or not 4 <= length <= _LONGEST:
            return found, at, True
        if at + 1 + length > len(data):
            break
        found.append((at, at + 1 + length, kind))
        at += 1 + length
    return found, at, False


def scan(data: bytes, in_stream: bool = False) -> tuple[list[Message], int, bool]:
    """The messages, where the tail begins, and whether it ends inside a streamed block."""
    found, at = [], 0
    while at + 5 <= len(data):
        length = struct.unpack_from(">I", data, at + 1)[0]
        if not 4 <= length <= _LONGEST:
            raise MalformedFrame("PG_BAD_FRAME", at)
        if at + 1 + length > len(data):
            break
        message = _message(data, at, at + 1 + length, in_stream)
        if message.kind == ord("S"):
            in_stream = True
        if message.kind == ord("E"):
            in_stream = False
        found.append(message)
        at = message.stop
    return found, at, in_stream


def _message(data: bytes, frame: int, stop: int, in_stream: bool) -> Message:
    if data[frame : frame + 1] != b"d":
        return Message(frame, frame + 5, frame + 5, stop, 0, 0, 0)
    payload = data[frame + 5 : stop]
    if payload[:1] == b"k":
        if len(payload) < 18:
            raise MalformedFrame("PG_BAD_MESSAGE", frame)
        return Message(frame, frame + 5, frame + 5, stop, ord("k"), 0, 0)
    if payload[:1] != b"w":
        raise MalformedFrame("PG_UNKNOWN_MESSAGE", frame)
    if len(payload) <= 25:
        raise MalformedFrame("PG_BAD_MESSAGE", frame)
    return _plugin_message(data, frame, frame + 30, stop, in_stream)


def _plugin_message(data: bytes, frame: int, start: int, stop: int, in_stream: bool) -> Message:
    kind = data[start : start + 1]
    if kind not in _LAYOUTS:
        raise MalformedFrame("PG_UNKNOWN_MESSAGE", frame)
    if (in_stream and kind in b"BCSAcbPpKr") or (not in_stream and kind == b"E"):
        raise MalformedFrame("PG_BAD_MESSAGE", frame)
    xid, relation, body = 0, 0, start + 1
    if in_stream and kind in b"RYIUDTM":
        if stop - body < 4:
            raise MalformedFrame("PG_BAD_MESSAGE", frame)
        xid = struct.unpack_from(">I", data, body)[0]
        body += 4
    if stop - body < struct.calcsize(_LAYOUTS[kind]):
        raise MalformedFrame("PG_BAD_MESSAGE", frame)
    if kind in b"ScA":
        xid = struct.unpack_from(">I", data, body)[0]
    if kind in b"IUDR":
        relation = struct.unpack_from(">I", data, body)[0]
    return Message(frame, start, body, stop, kind[0], relation, xid)
