"""The second copy of rows whose copy in chunks lacked a value: they are deleted and read again.

    an update moved a row from a chunk whose snapshot shows it to one whose snapshot does not, and left out a
    long value that it did not change: the value is in no copy and in no message (`core.chunks`)

Chunks that do not show a TRUNCATE which others show are copied again, too. The epoch that finds either case
applies nothing to the table. Here the new keys of such rows leave the table's files and its handoff. The
table is PENDING again and stays where it stood in the stream. The next copy, whose snapshot shows the update,
completes it. A row of errors/ goes with the row that it is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.chunks import MOST_ROUNDS, ByChunk, KeySpan, exact_from
from headrace.core.columns import contiguous
from headrace.core.keycode import keycode
from headrace.core.position import Position
from headrace.pipeline.state.records import TableRecord
from headrace.pipeline.state.table_state import TableEvent
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import Writing, read_file, write_sorted
from headrace.pipeline.tasks.routing import WIDTH, FileRange
from headrace.pipeline.tasks.table_task import (
    LakeAddress,
    Outcome,
    Outcomes,
    TableTask,
    from_ipc,
    pack,
    unpack,
)
from headrace.sources.contract.source import Source
from headrace.spark.jobs import Jobs


@dataclass(frozen=True, slots=True)
class Emptying:
    """The order to a task to take the rows of these spans out of a file."""

    epoch: int
    lake: LakeAddress
    table: TableTask
    file: FileRange
    spans: tuple[KeySpan, ...]
    time: int  # at which rows of errors/ are retracted: the table is not exact there yet


def retake(
    record: TableRecord,
    task: TableTask,
    outcome: Outcome,
    stands: Position,
    epoch: int,
    lake: LakeAddress,
    jobs: Jobs,
    source: Source,
) -> tuple[TableRecord, Outcome]:
    """Take these keys out of the table; it stays where it stood in the stream."""
    assert isinstance(record.handoff, ByChunk)
    rest, spans = _rest(record, outcome, source)
    time = exact_from(record.handoff).last
    items = [
        pack(Emptying(epoch, lake, replace(task, raw_columns=record.raw_columns), file, spans, time))
        for file in task.routes.files
        if any(_may_hold(file, span) for span in spans)
    ]
    outcomes = Outcomes()
    outcomes.take(Outcome(record.name))
    for answer in jobs.run(empty, items):
        outcomes.take(unpack(answer, Outcome))
    after = record.on(TableEvent.LACKING, handoff=rest, frontier=record.frontier or stands)
    return after, outcomes.tables[record.name]


def _rest(record: TableRecord, found: Outcome, source: Source) -> tuple[ByChunk, tuple[KeySpan, ...]]:
    """Reduce the copy to the chunks that stay, and find the spans to delete: all, if the copy is given up."""
    assert isinstance(record.handoff, ByChunk)
    if found.missing_values is None:
        rest = record.handoff.minus(found.incomplete)
        return (ByChunk((), rest.rounds), (KeySpan(),)) if rest.given_up else (rest, found.incomplete)
    assert source.key_bounds is not None  # only a copy of key ranges gets here
    keys = source.key_bounds(record.schema, from_ipc(found.missing_values))
    rest = ByChunk((), MOST_ROUNDS + 1) if keys is None else record.handoff.without(keys)
    if rest.given_up or keys is None:
        return ByChunk((), rest.rounds), (KeySpan(),)
    return rest, tuple(KeySpan(key, key.behind) for key in keys)


def _may_hold(file: FileRange, span: KeySpan) -> bool:
    above = span.low is None or file.high >= span.low.code[:WIDTH]
    return above and (span.high is None or file.low <= span.high.code[:WIDTH])


def empty(item: bytes) -> bytes:
    """Run the task: write a file again without the rows of the spans."""
    given = unpack(item, Emptying)
    writing = Writing(given.lake.open(), given.epoch)
    rows = read_file(writing.store, given.table, given.file)
    inside = _inside(keycode([rows.column(name) for name in given.table.schema.key]), given.spans)
    gone = rows.filter(inside)
    if not gone.num_rows:
        return pack(Outcome(given.table.name))
    known = raw_values.attach(writing.store, given.table, gone)
    return pack(
        Outcome(
            given.table.name,
            add=write_sorted(writing, given.table, rows.filter(pc.invert(inside))),
            remove=(given.file.path,),
            rows=-gone.num_rows,
            errors=writing.errors(given.table, raw_values.withdraw(given.table, known, given.time)),
        )
    )


def _inside(codes: pa.Array, spans: Sequence[KeySpan]) -> pa.Array:
    found = pc.is_null(codes)  # nobody
    for span in spans:
        for part in _conditions(codes, span):
            found = pc.or_(found, part)
    return contiguous(found)


def _conditions(codes: pa.Array, span: KeySpan) -> Iterator[pa.Array]:
    everything = pc.is_valid(codes)
    low = everything if span.low is None else pc.greater_equal(codes, pa.scalar(span.low.code, codes.type))
    high = everything if span.high is None else pc.less(codes, pa.scalar(span.high.code, codes.type))
    yield pc.and_(low, high)
