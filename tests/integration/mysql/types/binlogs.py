"""The stretch of a server's binlog between two moments, as frames of the spool, read from its files.

`Tail` notes where the log ends; `frames` are those of the tables of one database that were written since.
Times are numbers of transactions, times eight.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.decode.mysql.framing import ROWS, TABLE_MAP
from headrace.decode.mysql.table_map import names
from headrace.sources.mysql.stream import frames
from headrace_testing.mysql import Server

_GTIDS = (33, 162)
_CHECKSUM = 4


@dataclass(frozen=True)
class Tail:
    """The end of a server's binlog at one moment."""

    server: Server
    file: str
    position: int

    @classmethod
    def of(cls, server: Server) -> Tail:
        newer = server.version.startswith("9.")
        [row] = server.execute("SHOW BINARY LOG STATUS" if newer else "SHOW MASTER STATUS")
        return cls(server, str(row[0]), int(row[1]))

    def events(self) -> Iterator[tuple[int, bytes]]:
        """The kind and the body of each event since then; the log must not have gone on in another file."""
        end = Tail.of(self.server)
        assert end.file == self.file
        data = (self.server.process.data / self.file).read_bytes()
        at = self.position
        while at < end.position:
            _, kind, _, size, _, _ = struct.unpack_from("<IBIIIH", data, at)
            yield kind, data[at + frames.HEADER.size : at + size - _CHECKSUM]
            at += size

    def frames(self, database: str) -> bytes:
        """Build the frames that the receiver would store of these events."""
        found, count, wanted = [], 0, dict[bytes, bool]()
        for kind, body in self.events():
            if kind in _GTIDS:
                count += 1
                head = frames.begin(8 * count, 1_700_000_000_000_000 + count, f"7-1-{count}")
                found.append(frames.frame(frames.BEGIN, 0, 1, head))
            elif kind == TABLE_MAP:
                wanted[body[:6]] = names(body)[0] == database
            if kind in (TABLE_MAP, *ROWS) and wanted[body[:6]]:
                found.append(frames.frame(kind, 0, 1, body))
        return b"".join(found)


def executed(connection: Any, *statements: str) -> None:
    """Run statements one after another."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
