"""The receiver's half: the changes behind the last ones, as soon as they have committed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.position import STEP, Position
from headrace.sources.contract.stream import TRANSACTION, Orders, Stream, StreamRead, StreamSource
from headrace.sources.contract.values import Json
from toy_source import database
from toy_source.spelling import change_of

POLL_SECONDS = 0.05
_CHANGES = "SELECT number, relation, old, new FROM headrace_change WHERE number > ? ORDER BY number"


@dataclass(slots=True)
class ToyStream(Stream):
    """The stream of one file."""

    connection: sqlite3.Connection
    place: Position  # behind the change that was read last
    start: Position

    def read(self, timeout: float) -> StreamRead | None:
        deadline = time.monotonic() + timeout
        while database.end(self.connection) == self.place and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        self.connection.execute("BEGIN")  # all that is seen from here on has committed, and as a whole
        try:
            database.prove_changes(self.connection, self.place)
            rows = self.connection.execute(_CHANGES, [change_of(self.place.text)[0]]).fetchall()
            self.place = database.end(self.connection)
        finally:
            self.connection.execute("COMMIT")
        newest, at = change_of(self.place.text)
        lines: list[Json] = [{"time": STEP * newest, "number": newest, "at": at}] if rows else []
        lines += [
            {"change": number, "relation": relation, "old": _row(old), "new": _row(new)}
            for number, relation, old, new in rows
        ]
        data = np.frombuffer(b"".join(json.dumps(line).encode() + b"\n" for line in lines), np.uint8)
        batch = (False, STEP * newest, self.place.time, at, newest, len(rows), 0, 0, len(data))
        return StreamRead(
            size=len(data),
            data=data,
            transactions=np.array([batch] if rows else [], TRANSACTION),
            complete=self.place.time,
            source_end=(self.place.time, time.time_ns() // 1000),
            positions=(self.place,),
        )

    def close(self) -> None:
        self.connection.close()


def _row(text: str | None) -> list[object] | None:
    return None if text is None else json.loads(text)


class ToyStreamSource(StreamSource):
    """Files with a change table."""

    def open_stream(self, orders: Orders) -> ToyStream:
        connection = database.connect(orders.address.removeprefix("toy://"))
        database.prove_history(connection, orders.identity["history"])
        database.prove_changes(connection, orders.received_until)
        return ToyStream(connection, orders.received_until, orders.received_until)

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        return database.history_lost()


STREAM_SOURCE: StreamSource = ToyStreamSource()
