"""Twin of `mysql.framing` and `mysql.rows`: one frame and one row at a time."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from headrace.decode.mysql import table_map

Values = list[bytes | None]
Change = tuple[int, Values | None, Values | None]  # the kind of the event, the old row, the new one

_HEADER = struct.Struct("<IBIIIH")
_INSERTS, _UPDATES, _DELETES = (23, 30), (24, 31), (25, 32)


class MalformedRowEvent(Exception):
    """The bytes are no frames, or hold rows that are none."""


def frames_of(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The kind and the body of each whole frame."""
    while len(data) >= _HEADER.size:
        _, kind, _, size, _, _ = _HEADER.unpack_from(data)
        if size < _HEADER.size:
            raise MalformedRowEvent
        if size > len(data):
            return
        yield kind, data[_HEADER.size : size]
        data = data[size:]


def rows_of(data: bytes) -> list[Change]:
    """All row changes, with the bytes of their values."""
    maps: dict[bytes, list[int]] = {}
    found: list[Change] = []
    for kind, body in frames_of(data):
        if kind == 250:
            maps.clear()
        elif kind == 19:
            layout = table_map.layout(body, mariadb=False)
            maps[body[:6]] = [column.width for column in layout.columns]
        elif kind in (*_INSERTS, *_UPDATES, *_DELETES):
            if body[:6] not in maps:
                raise MalformedRowEvent
            found.extend(_changes(kind, body, maps[body[:6]]))
    return found


def _changes(kind: int, body: bytes, widths: list[int]) -> Iterator[Change]:
    rest = body[8:]
    if kind >= 30:
        if len(rest) < 2:
            raise MalformedRowEvent
        rest = rest[max(int.from_bytes(rest[:2], "little"), 2) :]
    if not rest or rest[0] != len(widths):
        raise MalformedRowEvent
    size = (len(widths) + 7) // 8
    bitmaps = size * (2 if kind in _UPDATES else 1)
    if len(rest) < 1 + bitmaps or not _all_set(rest[1 : 1 + bitmaps], size, len(widths)):
        raise MalformedRowEvent
    rest = rest[1 + bitmaps :]
    while rest:
        old = new = None
        if kind not in _INSERTS:
            old, rest = _row(rest, widths)
        if kind not in _DELETES:
            new, rest = _row(rest, widths)
        yield kind, old, new


def _all_set(bitmaps: bytes, size: int, count: int) -> bool:
    full = (1 << count) - 1
    parts = [bitmaps[at : at + size] for at in range(0, len(bitmaps), size)]
    return all(int.from_bytes(part, "little") & full == full for part in parts)


def _row(rest: bytes, widths: list[int]) -> tuple[Values, bytes]:
    size = (len(widths) + 7) // 8
    nulls, rest = int.from_bytes(rest[:size], "little"), _behind(rest, size)
    row: Values = []
    for i, width in enumerate(widths):
        if nulls >> i & 1:
            row.append(None)
            continue
        if width < 0:
            width, rest = int.from_bytes(rest[:-width], "little"), _behind(rest, -width)
        row.append(rest[:width])
        rest = _behind(rest, width)
    return row, rest


def _behind(rest: bytes, size: int) -> bytes:
    if len(rest) < size:
        raise MalformedRowEvent
    return rest[size:]
