"""A task: the events of one group of keys, folded into the file where the keys live.

A group is one data file of a table (`routing`), or a whole table where rows have no key. The merge

    reads the file · takes out the rows whose keys are touched · folds the events onto them
    writes the file anew (or leaves it alone) · writes exact history

and returns actions, never a commit. New files have names of their own, so that a task that runs twice
leaves at most an orphan.

**Vouching.** The key of an update or a delete must lie in exactly one file. No task sees all files, so
each key's home *vouches* for it and whoever holds the row *finds* it; the driver compares number and
hash of the two. A row that is missing, or there twice, stops the table before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.columns import Ints, column, ints
from headrace.core.errors import Definite
from headrace.core.events import Event
from headrace.core.fold import Folded, fold
from headrace.core.groups import group
from headrace.core.history import HISTORY_COLUMNS
from headrace.core.keycode import keycode
from headrace.core.multiset import KEY, NET, fold_multiset
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.lake import datafile, layout
from headrace.lake.plan import DataFile
from headrace.lake.store import Store, open_store
from headrace.pipeline import shadows
from headrace.pipeline.routing import WIDTH, prefixes
from headrace.pipeline.tasks import MASK64, NewFile, Outcome, Part, TableTask, from_ipc, pack, unpack

# A file smaller than this takes in new rows although none of its own changed; a larger one is left
# alone and the new rows become a file of their own.
SMALL_FILE = 4 << 20
ROWS_PER_FILE = 1 << 20

RESULTS = "~"  # the group of finished outcomes: they pass through


@dataclass(frozen=True, slots=True)
class Writing:
    """Where this task writes, and under which epoch's names."""

    store: Store
    epoch: int  # of a copy: the one that was next when it began

    def file(self, folder: str, table: pa.Table, keys: tuple[bytes, bytes] | None) -> DataFile:
        return datafile.write(self.store, folder, layout.file_name(self.epoch), table, sort_range=keys)


def merge(group: str, blobs: Iterator[bytes]) -> Iterable[bytes]:
    """The reducing side of an epoch's job."""
    if group == RESULTS:
        yield from blobs
        return
    parts = [unpack(blob, Part) for blob in blobs]
    # Parts differ in which columns have holes.
    events = pa.concat_tables([from_ipc(part.events) for part in parts], promote_options="default")
    first = parts[0]
    writing = Writing(open_store(first.lake.url, dict(first.lake.options) or None), first.epoch)
    if first.task.schema.is_multiset:
        yield pack(_merge_multiset(writing, first.task, events))
    else:
        assert first.file is not None
        yield pack(_merge_keyed(writing, first.task, first.file, events))


# --- tables with a key ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Split:
    """A file's rows, apart by whether an event touches their key, and the events that are ours."""

    rest: pa.Table
    base: pa.Table
    events: pa.Table
    vouched: tuple[int, int]
    found: tuple[int, int]


def _merge_keyed(writing: Writing, task: TableTask, file: int, events: pa.Table) -> Outcome:
    ours = task.routes.files[file] if task.routes.files else None
    present = _read(writing.store, task, ours.path if ours else None)
    split = _split(task.schema, present, events)
    folded = fold(shadows.extend(task), split.events, shadows.attach(writing.store, task, split.base))
    if failure := _failure(task, folded):
        return Outcome(task.name, failure=failure)
    final = folded.final.select(list(task.schema.names))
    rewrite = ours is not None and (split.base.num_rows > 0 or (final.num_rows and ours.size < SMALL_FILE))
    rows = pa.concat_tables([split.rest, final]) if rewrite else final
    log = _history(writing, task, folded)
    return Outcome(
        task.name,
        add=write_sorted(writing, task, rows),
        remove=(ours.path,) if ours is not None and rewrite else (),
        history=log,
        errors=shadows.errors(task, folded.history),
        rows=final.num_rows - split.base.num_rows,
        vouched=split.vouched,
        found=split.found,
    )


def _read(store: Store, task: TableTask, path: str | None) -> pa.Table:
    if path is None:
        return task.schema.arrow().empty_table()
    return datafile.read(store, task.folder, path).cast(task.schema.arrow())


def _split(schema: TableSchema, present: pa.Table, events: pa.Table) -> _Split:
    keys = pl.Series(keycode([present.column(name) for name in schema.key]))
    of_event = pl.Series(events.column("_key").combine_chunks())
    touched = keys.is_in(of_event.unique().implode())
    base_keys = keys.filter(touched)
    order = _first_events(of_event, events)
    known = of_event.is_in(base_keys.implode())
    vouches = order["_first"] & order["_home"] & order["_expects"]
    finds = order["_first"] & known & order["_expects"]
    takes = known | (order["_home_key"] & ~order["_expects_key"])
    mask = touched.to_arrow()
    return _Split(
        rest=present.filter(pc.invert(mask)),
        base=present.filter(mask),
        events=events.filter(takes.to_arrow()).drop_columns(["_home"]),
        vouched=_digest(of_event.filter(vouches)),
        found=_digest(of_event.filter(finds)),
    )


def _first_events(keys: pl.Series, events: pa.Table) -> pl.DataFrame:
    """For each event: is it its key's first, does that first one expect a row, is this the key's home."""
    frame = pl.DataFrame(
        {
            "key": keys,
            "time": pl.Series(events.column("_time")),
            "ordinal": pl.Series(events.column("_ordinal")),
            "event": pl.Series(events.column("_event")),
            "_home": pl.Series(events.column("_home")),
        }
    ).with_row_index("row")
    insert = pl.col("event") == int(Event.INSERT)
    ranked = frame.sort("key", "time", "ordinal", insert).with_columns(
        _first=pl.col("key").is_first_distinct(),
        _expects=~insert,
    )
    return ranked.with_columns(
        _expects_key=pl.col("_expects").first().over("key"),
        _home_key=pl.col("_home").first().over("key"),
    ).sort("row")


def _digest(keys: pl.Series) -> tuple[int, int]:
    hashes = keys.hash(seed=0).to_numpy()
    return len(keys), int(np.add.reduce(hashes, dtype=np.uint64)) & MASK64 if len(keys) else 0


def _failure(task: TableTask, folded: Folded) -> Definite | None:
    if len(folded.conflict):
        return Definite(
            "ROW_PRESENT",
            f"an insert into {task.name} met a row that is there already",
            detail=f"{len(folded.conflict)} keys",
            hint=f"prove the table with `headrace verify`, then `headrace tables resync {task.name}`",
        )
    if len(folded.missing):
        return row_missing(task.name, len(folded.missing))
    if len(folded.holes):
        return Definite(
            "TOAST_LOST",
            f"an unchanged value of {task.name} is nowhere to be found",
            detail=f"in {len(folded.holes)} rows",
            hint=f"ALTER TABLE {task.name} REPLICA IDENTITY FULL, then `headrace tables resync {task.name}`",
        )
    return None


def key_without_form(task: TableTask, column: str) -> Definite:
    """Rows are told apart by their key: a key that the lake cannot hold stops the table."""
    return Definite(
        "KEY_WITHOUT_LAKE_FORM",
        f"a key of {task.name} holds a value that its lake type cannot",
        detail=f'column "{column}"',
        hint="remove the value at the source (an infinity, a NaN), or give the table another identity",
    )


def _history(writing: Writing, task: TableTask, folded: Folded) -> tuple[DataFile, ...]:
    """Tables with full before-images have their history written where the stream was decoded."""
    if task.schema.full or not folded.history.num_rows:
        return ()
    return write_history(writing, task, folded.history)


def write_history(writing: Writing, task: TableTask, history: pa.Table) -> tuple[DataFile, ...]:
    """One history file; rows in the order of time, so that statistics prune by it."""
    time, diff, ordinal = history.column_names[-len(HISTORY_COLUMNS) :][:3]
    plain = shadows.drop(task, history)
    ordered = plain.sort_by([(time, "ascending"), (ordinal, "ascending"), (diff, "ascending")])
    return (writing.file(task.history_folder, ordered, None),)


def write_sorted(writing: Writing, task: TableTask, rows: pa.Table) -> tuple[NewFile, ...]:
    """The rows in the order of their keys, in files of bounded size."""
    if not rows.num_rows:
        return ()
    identity = list(task.schema.identity)
    keys = keycode([rows.column(name) for name in identity])
    order = pl.Series(keys).arg_sort().to_arrow()
    rows, keys = rows.take(order), keys.take(order)
    pieces = -(-rows.num_rows // ROWS_PER_FILE)
    cuts = [rows.num_rows * i // pieces for i in range(pieces + 1)]
    return tuple(
        _new_file(writing, task, rows.slice(low, high - low), keys.slice(low, high - low))
        for low, high in pairwise(cuts)
    )


def _new_file(writing: Writing, task: TableTask, rows: pa.Table, keys: pa.Array) -> NewFile:
    """A file, and the key codes of its first and last row, cut as `routing` compares them."""
    low, high = keys[0].as_py()[:WIDTH], keys[-1].as_py()[:WIDTH]
    return NewFile(writing.file(task.folder, rows, (low, high)), low, high)


# --- tables without a key ---------------------------------------------------------------------


def _merge_multiset(writing: Writing, task: TableTask, nets: pa.Table) -> Outcome:
    """Copies of a row may lie in any file: the files are visited in turn, each gives what it has."""
    net = _consolidated(nets)
    gone = net.filter(pc.less(net[NET], 0))
    outcome = Outcome(task.name)
    for number in task.routes.touching(prefixes(column(gone, KEY))) if gone.num_rows else ():
        file = task.routes.files[number]
        rows = _read(writing.store, task, file.path)
        here = _present(task.schema, rows, gone)
        if here.any():
            left = fold_multiset(task.schema, rows, _with_net(gone, -here)).final
            gone = _with_net(gone, ints(gone, NET) + here)
            rewritten = Outcome(
                task.name,
                add=write_sorted(writing, task, left),
                remove=(file.path,),
                rows=left.num_rows - rows.num_rows,
            )
            outcome = outcome.combine(rewritten)
    if short := int(np.count_nonzero(ints(gone, NET))):
        return Outcome(task.name, failure=row_missing(task.name, short))
    empty = task.schema.arrow().empty_table()
    added = fold_multiset(task.schema, empty, net.filter(pc.greater(net[NET], 0))).final
    grown = Outcome(task.name, add=write_sorted(writing, task, added), rows=added.num_rows)
    return outcome.combine(grown)


def _present(schema: TableSchema, rows: pa.Table, gone: pa.Table) -> Ints:
    """How many of the copies that have to go this file can give, for each of the rows."""
    codes = keycode([rows.column(name) for name in schema.names])
    counts = pl.Series("key", codes).value_counts(name="there")
    wanted = pl.DataFrame({"key": pl.Series(column(gone, KEY)), "net": ints(gone, NET)})
    joined = wanted.join(counts, on="key", how="left", maintain_order="left")
    there: Ints = joined["there"].fill_null(0).to_numpy().astype(np.int64)
    return np.minimum(there, -ints(gone, NET))


def _with_net(rows: pa.Table, net: Ints) -> pa.Table:
    return rows.set_column(rows.column_names.index(NET), NET, pa.array(net, pa.int64()))


def _consolidated(nets: pa.Table) -> pa.Table:
    """One row for each distinct row of the table, with its net count."""
    groups = group(column(nets, KEY))
    sums = groups.sums(ints(nets, NET))
    uneven = np.flatnonzero(sums)
    return _with_net(nets.take(pa.array(groups.first[uneven])), sums[uneven])


def row_missing(table: TableName, rows: int) -> Definite:
    """Something that the source changed is not there to be changed."""
    return Definite(
        "ROW_MISSING",
        f"rows of {table} that the source changed are not in the lake, or are there twice",
        detail=f"{rows} rows",
        hint=f"prove the table with `headrace verify`, then `headrace tables resync {table}`",
    )
