"""Rows between the driver and the tasks: one Arrow form for items, shuffled blobs, results and errors.

Spark sees only this. To it a payload is an opaque binary; no row of a user's table ever becomes a row
of Spark (DESIGN section 4).

    kind     RESULT, or an error as a value: ERROR (one of our families), BUG (anything else)
    stage    0 the task or the split, 1 the merge
    item     index of the item that it came from; -1 after a merge
    grp      group of the shuffle; "" without one
    ord      order within the group, as the split gave it
    part     number of the row among those that one call made
    payload  the blob, or the error as JSON

Errors travel as values because Spark would make text of them: the code and the hint would be lost in
a stack trace, and a trace that Spark prints may quote a row's value (G8). A bug brings the types of its
chain and the places in the code, but never the message, which for most exceptions quotes the value.

Pure: no Spark, no I/O.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa

from headrace.core.errors import HeadraceError, Transient
from headrace.core.records import from_record, to_record

RESULT: Final = 0
ERROR: Final = 1
BUG: Final = 2

SCHEMA: Any = pa.schema(
    [
        ("kind", pa.int32()),
        ("stage", pa.int32()),
        ("item", pa.int64()),
        ("grp", pa.string()),
        ("ord", pa.int64()),
        ("part", pa.int64()),
        ("payload", pa.binary()),
    ]
)
# The same in Spark's words, for the declared output of `mapInArrow`.
DDL: Final = "kind int, stage int, item bigint, grp string, ord bigint, part bigint, payload binary"

# A batch is closed when either is reached: large enough that its framing costs nothing, small enough
# that a worker never holds more than a few megabytes besides the blob in hand.
_BATCH_BYTES: Final = 4 << 20
_BATCH_ROWS: Final = 512


class Row(NamedTuple):
    """One row on the wire; the fields are those of the module's table."""

    kind: int
    stage: int
    item: int
    grp: str
    ord: int
    part: int
    payload: bytes


def to_batch(rows: Sequence[Row]) -> Any:
    """The rows as one record batch."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(SCHEMA)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def to_batches(rows: Iterable[Row]) -> Iterator[Any]:
    """The rows as record batches of bounded size, made as the rows come."""
    held: list[Row] = []
    size = 0
    for row in rows:
        held.append(row)
        size += len(row.payload)
        if size >= _BATCH_BYTES or len(held) >= _BATCH_ROWS:
            yield to_batch(held)
            held, size = [], 0
    if held:
        yield to_batch(held)


def to_table(rows: Sequence[Row], chunk: int) -> Any:
    """The rows as a table of chunks of `chunk` rows: Spark makes a partition of each chunk."""
    batches = [to_batch(rows[start : start + chunk]) for start in range(0, len(rows), chunk)]
    return pa.Table.from_batches(batches, schema=SCHEMA)


def from_batches(batches: Iterable[Any]) -> Iterator[Row]:
    """The rows of record batches; a payload is copied out only when its row is reached."""
    for batch in batches:
        small = [batch.column(i).to_pylist() for i in range(len(SCHEMA) - 1)]
        payloads = batch.column(len(SCHEMA) - 1)
        for position, head in enumerate(zip(*small, strict=True)):
            yield Row(*head, payloads[position].as_py())  # type: ignore[call-arg]


def from_error(error: Exception, stage: int, item: int, grp: str) -> Row:
    """An exception as a row; nothing of it but code, family and places for what is not ours."""
    where = frames(error)
    if isinstance(error, MemoryError):
        error = Transient(
            "SPARK_TASK_OUT_OF_MEMORY",
            "a Spark task ran out of memory",
            hint="give executors more memory (spark.executor.memoryOverhead) or fewer cores",
        )
    if isinstance(error, HeadraceError):
        record: dict[str, Any] = {**to_record(error), "where": where}
        return Row(ERROR, stage, item, grp, 0, 0, json.dumps(record).encode())
    record = {"type": type(error).__qualname__, "where": where}
    return Row(BUG, stage, item, grp, 0, 0, json.dumps(record).encode())


def to_error(row: Row) -> Exception:
    """The exception that an ERROR or BUG row carries, to be raised by the driver."""
    record = json.loads(row.payload)
    where = record.pop("where")
    error: Exception
    if row.kind == ERROR:
        error = from_record(HeadraceError, record)
        error.add_note(where)
        return error
    return RuntimeError(f"{record['type']} in a task\n{where}")


def frames(error: BaseException) -> str:
    """The chain of types and the places in the code, without messages and without locals."""
    lines: list[str] = []
    for link in _chain(error):
        lines.append(f"{type(link).__module__}.{type(link).__qualname__} at (innermost last):")
        for frame in traceback.extract_tb(link.__traceback__):
            lines.append(f'  file "{frame.filename}", line {frame.lineno}, in {frame.name}')
            if frame.line:
                lines.append(f"    {frame.line}")
    return "\n".join(lines)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error, then what it came from; a chain may loop, so each is told once."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or (None if link.__suppress_context__ else link.__context__)


def collect(rows: Iterable[Row]) -> list[bytes]:
    """The payloads in the one order that does not depend on scheduling, or the first error raised.

    An error of an earlier stage comes first: what a merge says of a group of which a part is missing
    is a consequence.
    """
    held = list(rows)
    failed = [row for row in held if row.kind != RESULT]
    if failed:
        raise to_error(min(failed, key=lambda row: (row.stage, row.item, row.grp)))
    held.sort(key=lambda row: (row.grp, row.item, row.ord, row.part))
    return [row.payload for row in held]
