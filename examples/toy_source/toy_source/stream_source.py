"""The receiver's half: the changes behind the last ones, as soon as they have committed."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from headrace.core.errors import HeadraceError
from headrace.core.position import STEP, Position
from headrace.sources.contract.stream import TRANSACTION, Orders, StreamRead, StreamSource
from headrace.sources.contract.values import Json
from toy_source import database
from toy_source.spelling import change_of, position

POLL_SECONDS = 0.05


@dataclass(slots=True)
class ToyStream:
    """The stream of one file."""

    feedback: ClassVar[None] = None  # the file keeps its changes until a person deletes them
    pause: ClassVar[float] = 1.0

    connection: sqlite3.Connection
    identity: str
    start: Position
    newest: int  # the change that was read last

    def read(self, timeout: float) -> StreamRead | None:
        deadline = time.monotonic() + timeout
        while database.newest(self.connection) == self.newest:
            if time.monotonic() >= deadline:
                return self._brought([], self.newest, 0)
            time.sleep(POLL_SECONDS)
        self.connection.execute("BEGIN")  # all that is seen from here on has committed, and as a whole
        try:
            database.prove(self.connection, self.identity, self.newest)
            rows = self.connection.execute(
                "SELECT number, at, relation, old, new FROM headrace_change WHERE number > ? ORDER BY number",
                [self.newest],
            ).fetchall()
        finally:
            self.connection.execute("COMMIT")
        newest, at = rows[-1][0], max(row[1] for row in rows)
        lines = [{"time": STEP * newest, "number": newest, "at": at}]
        lines += [
            {"change": number, "relation": relation, "old": _row(old), "new": _row(new)}
            for number, _, relation, old, new in rows
        ]
        return self._brought(lines, newest, at)

    def close(self) -> None:
        self.connection.close()

    def _brought(self, lines: list[Json], newest: int, at: int) -> StreamRead:
        data = np.frombuffer(b"".join(json.dumps(line).encode() + b"\n" for line in lines), np.uint8)
        behind = position(newest)
        batch = (False, STEP * newest, behind.time, at, newest, len(lines) - 1, 0, 0, len(data))
        self.newest = newest
        return StreamRead(
            size=len(data),
            data=data,
            transactions=np.array([batch] if lines else [], TRANSACTION),
            open=None,
            running={},
            rolled_back=(),
            aborted_parts={},
            layouts=(),
            complete=behind.time,
            source_end=(behind.time, time.time_ns() // 1000),
            amid=False,
        )


def _row(text: str | None) -> list[object] | None:
    return None if text is None else json.loads(text)


class ToyStreamSource:
    """Files with a change table."""

    picking: ClassVar[None] = None  # triggers write down the tables that are wanted

    def open_stream(self, orders: Orders) -> ToyStream:
        path = orders.address.removeprefix("toy://")
        connection, reached = database.connect(path), change_of(orders.received_until)
        database.prove(connection, orders.identity["history"], reached)
        return ToyStream(connection, orders.identity["history"], position(reached), reached)

    def at(self, upstream: Json, time: int) -> Position:
        return Position(time, position((time - 1) // STEP).text)

    def history_changed(
        self, upstream: Json, sent_times: Sequence[int], again: Sequence[int]
    ) -> HeadraceError:
        return database.HistoryLost(
            "TOY_HISTORY_LOST",
            "the file does not hold the changes that it held before",
            hint="headrace run --reconcile",
        )


STREAM_SOURCE: StreamSource = ToyStreamSource()
