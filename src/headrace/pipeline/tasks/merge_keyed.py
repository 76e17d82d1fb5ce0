"""A merge: the events of one group of keys, folded into the file where the keys live.

A group is one of

    a file     the keys whose rows may lie in it, and the unknown keys whose home it is
    a birth    the unknown keys of a range, when an epoch brings very many: they get files of their own

Where the table is truncated no row of a file stays, and the file goes (see `partition`). Else the merge reads
the file, takes out the rows whose keys are touched, folds the events onto them, writes the file anew or
leaves it alone, and writes exact history.

**Origins.** Where rows change keys and leave values out, the events of a row come to the file in which it was
found, whatever keys they are of (`core.origins`): all that is said of keys here holds for their origins. Rows
whose key is another one in the end become files of their own, so that files go on covering ranges of their
own. So what a task holds is a file and the events of its rows, also where an epoch changes every key of a
table.

**Vouching.** The key of an update or a delete must lie in exactly one file. No task sees all files, so
each key's home *vouches* for it and whoever holds the row *finds* it; the driver compares number and
hash of the two. A row that is missing, or there twice, stops the table before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from headrace.core.chunks import ByChunk
from headrace.core.columns import column, flags, narrow
from headrace.core.errors import Definite, ShapeChanged
from headrace.core.fold import FoldResult, fold
from headrace.core.key_events import KeyEvent
from headrace.core.keycode import keycode
from headrace.core.net_events import net_events
from headrace.core.schema import TableSchema
from headrace.core.truncation import of_truncations
from headrace.pipeline.tasks import raw_values
from headrace.pipeline.tasks.files import (
    SMALL_FILE,
    Writing,
    read_file,
    row_missing,
    row_sum,
    write_history,
    write_sorted,
)
from headrace.pipeline.tasks.merge_truncated import belonging, merge_remainder, retract
from headrace.pipeline.tasks.partition import ORIGIN, PROBE
from headrace.pipeline.tasks.routing import prefixes
from headrace.pipeline.tasks.table_task import MASK64, Outcome, TableTask, to_ipc

# In memory a fold is several times what it folds, so a large group is folded a range of keys at a time.
ROWS_AT_ONCE = 1 << 17
BYTES_AT_ONCE = 32 << 20
SAMPLED = 4096  # keys that are looked at to find the ranges

# --- one file, or none ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Split:
    """A file's rows, apart by whether an event touches their key, and the events that are ours."""

    keys: pl.Series  # under which the events' rows were found
    rest: pa.Table
    base: pa.Table
    events: pa.Table
    expected_keys: tuple[int, int]
    matched_keys: tuple[int, int]


@dataclass(frozen=True, slots=True)
class MergedRows:
    """The rows of a group after the fold of all its ranges."""

    rest: pa.Table  # rows that were there and that no event touches
    stay: pa.Table  # the others as they are now
    gone_rows: pa.Table  # and those of them that have gone to keys elsewhere
    before: int  # rows that were touched
    outcome: Outcome  # all but the files

    @property
    def growth(self) -> int:
        return self.now - self.before

    @property
    def now(self) -> int:
        return int(self.stay.num_rows) + int(self.gone_rows.num_rows)


def merge_file(writing: Writing, task: TableTask, events: pa.Table) -> Outcome:
    """A group of one file; of none where the keys are born or the table is empty."""
    ours = task.routes.files[0] if task.routes.files else None
    merged = fold_onto(writing, task, _present_rows(writing, task), events)
    if isinstance(merged, Outcome):
        return merged
    if ours is not None and (merged.before > 0 or (merged.now and ours.size < SMALL_FILE)):
        kept = pa.concat_tables([merged.rest, merged.stay])
        remove: tuple[str, ...] = (ours.path,)
    else:
        kept, remove = merged.stay, ()
    add = (*write_sorted(writing, task, kept), *write_sorted(writing, task, merged.gone_rows))
    return replace(merged.outcome, add=add, remove=remove, rows=merged.growth)


def merge_truncated_file(writing: Writing, task: TableTask, events: pa.Table) -> Outcome:
    """The file of a truncated table: what happened to its touched rows, and the end of the others."""
    if not events.num_rows:
        return merge_remainder(writing, task, events)
    merged = fold_onto(writing, task, _present_rows(writing, task), events)
    if isinstance(merged, Outcome):
        return merged
    touched = replace(merged.outcome, remove=(task.routes.files[0].path,), rows=-merged.before)
    return touched.combine(retract(writing, task, merged.rest))


def _present_rows(writing: Writing, task: TableTask) -> pa.Table:
    """The rows of the group's file."""
    return read_file(writing.store, task, task.routes.files[0] if task.routes.files else None)


def fold_onto(writing: Writing, task: TableTask, present: pa.Table, events: pa.Table) -> MergedRows | Outcome:
    """The events folded onto the rows of their group; the outcome where that can't be used."""
    events, probes = _apart(events)
    if failure := _present(task, present, probes):
        return Outcome(task.name, failure=failure)
    outcome, unfit = Outcome(task.name), Outcome(task.name)
    nothing = present.slice(0, 0)
    rest, stay, gone, before = [nothing], [nothing], [nothing], 0
    for own, some in _ranges(task.schema, present, events):
        split = _split(task.schema, own, net_events(task.schema, some, task.truncations))
        folded = _fold(writing, task, split.events, split.base)
        unfit = unfit.combine(_unfit(task, folded, split.events))
        if unfit.failure is not None:
            return unfit
        outcome = outcome.combine(_outcome_of_range(writing, task, split, folded))
        before += split.base.num_rows
        rest.append(split.rest)
        for rows, into in zip(_stay_or_gone(task, split, folded), (stay, gone), strict=True):
            into.append(rows)
    if unfit.missing_values is not None:
        return unfit
    whole = pa.concat_tables
    return MergedRows(whole(rest), whole(stay), whole(gone), before, outcome)


def _ranges(schema: TableSchema, present: pa.Table, events: pa.Table) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The file's rows and the events, so many keys at a time that a fold of them is small."""
    rows, size = present.num_rows + events.num_rows, present.nbytes + events.nbytes
    pieces = max(-(-rows // ROWS_AT_ONCE), -(-size // BYTES_AT_ONCE))
    # Where a row's value, or the row, is found under another key, all are folded together.
    if pieces < 2 or ORIGIN in events.column_names or events["_from"].null_count < events.num_rows:
        yield present, events
        return
    of_rows = prefixes(keycode([present.column(name) for name in schema.key]))
    of_events = prefixes(column(events, "_key"))
    some = np.sort(np.concatenate([each[:: 1 + len(each) // SAMPLED] for each in (of_rows, of_events)]))
    cuts = np.unique(some[[len(some) * i // pieces for i in range(1, pieces)]])
    row_pieces, event_pieces = (np.searchsorted(cuts, each, side="right") for each in (of_rows, of_events))
    for number in range(len(cuts) + 1):
        mine = [pa.array(np.flatnonzero(each == number)) for each in (row_pieces, event_pieces)]
        yield present.take(mine[0]), events.take(mine[1])


def _apart(events: pa.Table) -> tuple[pa.Table, pa.Table]:
    """The events, and the probes among them."""
    if PROBE not in events.column_names:
        return events, events.slice(0, 0)
    mask = pa.array(flags(column(events, PROBE)))
    events = events.drop_columns([PROBE])
    return events.filter(pc.invert(mask)), events.filter(mask)


def _present(task: TableTask, present: pa.Table, probes: pa.Table) -> Definite | None:
    """A row of the file under a key to which a row of another file comes."""
    if not probes.num_rows:
        return None
    here = pl.Series(column(probes, "_key")).is_in(_keys(task.schema, present).implode())
    return _row_present(task, probes, column(probes, "_key").filter(here.to_arrow()))


def _stay_or_gone(task: TableTask, split: _Split, folded: FoldResult) -> tuple[pa.Table, pa.Table]:
    """The touched rows as they are now: those under keys of the group, and those that have gone elsewhere."""
    final = folded.final.select(list(task.schema.names))
    here = pl.Series(folded.keys).is_in(split.keys.implode()).to_arrow()
    gone = final.filter(pc.invert(here))
    return (final.filter(here) if gone.num_rows else final), gone


def _split(schema: TableSchema, present: pa.Table, events: pa.Table) -> _Split:
    keys = _keys(schema, present)
    of_event = pl.Series(column(events, ORIGIN if ORIGIN in events.column_names else "_key"))
    distinct = of_event.unique()
    touched = keys.is_in(distinct.implode())
    base_keys = keys.filter(touched)
    order = _first_events(of_event, events)
    known = of_event.is_in(base_keys.implode())
    vouches = order["_first"] & order["_home"] & order["_expects"]
    finds = order["_first"] & known & order["_expects"]
    takes = known | (order["_home"] & ~order["_expects_key"])
    mask = touched.to_arrow()
    ours = [name for name in ("_home", ORIGIN) if name in events.column_names]
    return _Split(
        keys=distinct,
        rest=present.filter(pc.invert(mask)),
        base=present.filter(mask),
        events=events.filter(takes.to_arrow()).drop_columns(ours),
        expected_keys=_digest(of_event.filter(vouches)),
        matched_keys=_digest(of_event.filter(finds)),
    )


def _keys(schema: TableSchema, rows: pa.Table) -> pl.Series:
    return pl.Series(keycode([rows.column(name) for name in schema.key]))


def _fold(writing: Writing, task: TableTask, events: pa.Table, base: pa.Table) -> FoldResult:
    base = raw_values.attach(writing.store, task, base)
    return fold(raw_values.extend(task), events, base, task.truncations)


def _first_events(keys: pl.Series, events: pa.Table) -> pl.DataFrame:
    """For each event: is it its key's first, does that first one expect a row, is this the key's home.

    Keys are origins: their first event is one under the key itself. Behind a truncation there may be none.
    """
    frame = pl.DataFrame(
        {
            "key": keys,
            "own": keys == pl.Series(column(events, "_key")),
            "time": pl.Series(events.column("_time")),
            "ordinal": pl.Series(events.column("_ordinal")),
            "event": pl.Series(events.column("_event")),
            "_home": pl.Series(events.column("_home")),
        }
    ).with_row_index("row")
    insert = pl.col("event") == int(KeyEvent.INSERT)
    ranked = frame.sort("key", ~pl.col("own"), "time", "ordinal", insert).with_columns(
        _first=pl.col("key").is_first_distinct() & pl.col("own"),
        _expects=~insert,
    )
    return ranked.with_columns(
        _expects_key=(pl.col("_expects") & pl.col("own")).first().over("key"),
    ).sort("row")


def _digest(keys: pl.Series) -> tuple[int, int]:
    hashes = keys.hash(seed=0).to_numpy()
    return len(keys), int(np.add.reduce(hashes, dtype=np.uint64)) & MASK64 if len(keys) else 0


# --- what came of it --------------------------------------------------------------------------


def _unfit(task: TableTask, folded: FoldResult, events: pa.Table) -> Outcome:
    """Say why the fold can't be used: the table is at fault, or its copy in chunks lacks a value."""
    if isinstance(task.handoff, ByChunk) and len(folded.holes):
        return Outcome(task.name, missing_values=_keys_at(task, events, folded.holes))
    return Outcome(task.name, failure=_failure(task, folded, events))


def _keys_at(task: TableTask, events: pa.Table, codes: pa.Array) -> bytes:
    """The keys of these keycodes, each once; a key column is never a hole."""
    frame = pl.DataFrame({"code": pl.Series(events.column("_key").combine_chunks())}).with_row_index("row")
    wanted = frame.filter(pl.col("code").is_in(pl.Series(codes).implode())).unique("code", keep="first")
    rows = events.take(wanted["row"].to_arrow())
    names = task.schema.names
    keys = {name: rows.column(f"c{names.index(name)}") for name in task.schema.key}
    return to_ipc(narrow(pa.table(keys)))


def _failure(task: TableTask, folded: FoldResult, events: pa.Table) -> Definite | None:
    if present := _row_present(task, events, folded.conflict):
        return present
    if len(folded.missing):
        return row_missing(task.name, len(folded.missing), _changed_from(events, folded.missing))
    if len(folded.holes):
        # A row that came into a row filter by an update: the source sent it without what did not change.
        return ShapeChanged(
            "TOAST_LOST",
            f"an unchanged value of {task.name} is nowhere to be found",
            detail=f"in {len(folded.holes)} rows, {_changed_from(events, folded.holes)}",
            hint=f"headrace tables resync {task.name}; by REPLICA IDENTITY FULL the source sends all values",
        )
    return None


def _row_present(task: TableTask, events: pa.Table, codes: pa.Array) -> Definite | None:
    if not len(codes):
        return None
    return Definite(
        "ROW_PRESENT",
        f"an insert into {task.name} met a row that is there already",
        detail=f"{len(codes)} keys, {_changed_from(events, codes)}",
        hint="headrace tables resync copies it anew; please report it",
    )


def _changed_from(events: pa.Table, codes: pa.Array) -> str:
    """The time of the first transaction that changed one of these keys."""
    ours = pc.is_in(events.column("_key"), codes)
    return f"changed in the stream from _time {pc.min(events.column('_time').filter(ours)).as_py()} on"


def _outcome_of_range(writing: Writing, task: TableTask, split: _Split, folded: FoldResult) -> Outcome:
    """The range's history and errors, and who vouches for whom.

    Of tables with full before-images `decode` has written both, but for what truncations took.
    """
    outcome = Outcome(task.name, expected_keys=split.expected_keys, matched_keys=split.matched_keys)
    if task.proves_history:
        became = row_sum(task.schema, folded.final) - row_sum(task.schema, split.base)
        outcome = replace(outcome, balance=-became & MASK64)
    by_decode = task.schema.full and not task.from_sorted_runs
    if by_decode and not task.truncations:
        return outcome
    history = folded.history()
    errors = writing.errors(task, raw_values.errors(task, history))
    if by_decode:
        history = history.filter(pa.array(of_truncations(task.truncations, history)))
    history = belonging(task, history)
    return replace(outcome, history=write_history(writing, task, history), errors=errors)
