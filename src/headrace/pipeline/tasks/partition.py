"""The split of a slice's rows over the groups of an epoch's merge, and how each merges (`table_task.Merge`).

    a table with a key      file by file, as `routing` tells; overlapping files each get a shared key's events
    with vectors            one group for all of the table (`merge_vectors`)
    no key                  one group for all of the table
    a table that is         generation 0 as above, and every file is a group, events or not: it has to go;
    truncated in the epoch  the other generations in groups of their own, which know no file

Where rows change keys and leave values out, their events go where each row was found (`core.origins`), under
whatever key they happen: the place of an event is that of its origin. To the place of its key goes a *probe*,
since nobody may hold that key there.

A truncated table without a key is not read at once: its one group takes the rows that changes touch out of
the files, and each file retracts by itself what is left (`REMAINDER`), for which it is told the keys that it
must leave alone.

A group's rows are one of

    events      of `core.key_events`, and `_home`: whether the group is the key's home; where origins are
                known `_origin`, and `_probe`: no event, but a key that must not be there
    nets        of `core.multiset`; of a later generation with the truncation that ends it (`END`), or NULL
    keys        `_key` only: what a file's rest is not
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from headrace.core.columns import Flags, Ints
from headrace.core.multiset import KEY, net
from headrace.core.truncation import Truncation, generations
from headrace.pipeline.tasks.routing import Routes, prefixes
from headrace.pipeline.tasks.table_task import Merge, TableTask

ALL = "*"  # the group of all rows of a table
NEW = "new"  # the groups of the rows that came after a truncation
END = tuple(f"_{name}" for name in Truncation._fields)
ORIGIN, ARRIVES, PROBE = "_origin", "_arrives", "_probe"

Share = tuple[str, TableTask, pa.Table]  # of which group, what its merge must know, its rows


def of_events(task: TableTask, events: pa.Table) -> Iterator[Share]:
    """The groups of the events of a table that has a key."""
    if task.has_vectors:
        yield ALL, replace(task, merge=Merge.VECTORS), _at_home(events)
        return
    if not task.truncations:
        yield from _by_place(task, events)
        return
    generation = generations(task.truncations, events)
    old, first = events.filter(pa.array(generation == 0)), replace(task, truncations=task.truncations[:1])
    if old.num_rows:
        yield from _by_place(first, old)
    later = np.flatnonzero(generation > 0)
    yield from _later_events(task, events.take(pa.array(later)), generation[later])


def of_changes(task: TableTask, changes: pa.Table) -> Iterator[Share]:
    """The groups of the changes of a table without a key."""
    if not task.truncations:
        yield ALL, replace(task, merge=Merge.KEYLESS), net(task.schema, changes)
        return
    generation = generations(task.truncations, changes)
    first = replace(task, truncations=task.truncations[:1], merge=Merge.KEYLESS_TRUNCATED)
    old = changes.filter(pa.array(generation == 0))
    nets = net(task.schema, old)
    if nets.num_rows:
        yield ALL, first, nets
        yield from _keys_of_rests(first, nets)
    for number in np.unique(generation[generation > 0]):
        nets = net(task.schema, changes.filter(pa.array(generation == number)))
        yield from _later_nets(task, _ending(nets, task, int(number)))


def of_files(task: TableTask) -> Iterator[Share]:
    """Every file of a truncated table, though no event may touch it."""
    nothing = pa.table({KEY: pa.array([], pa.large_binary())})
    how = Merge.REMAINDER if task.schema.is_multiset else Merge.TRUNCATED
    for number in range(len(task.routes.files)):
        yield str(number), replace(_own(task, number), truncations=task.truncations[:1], merge=how), nothing


def is_scattered(task: TableTask, events: pa.Table) -> bool:
    """Tell whether a value may have to be looked up under a key of another group."""
    if task.has_vectors:
        return False
    births = len(task.routes.births)
    groups = len(task.routes.files) + (births + 1 if births else 0)
    return groups > 1 and events["_from"].null_count < events.num_rows


def _by_place(task: TableTask, found: pa.Table) -> Iterator[Share]:
    """The events, file by file of the table; overlapping files each get the events of shared keys."""
    if ARRIVES in found.column_names:
        arrived = found.filter(found[ARRIVES])
        found = _probing(found.drop_columns([ARRIVES]), probe=False)
        yield from _place_events(task, _probing(arrived.drop_columns([ARRIVES]), probe=True), KEY)
    yield from _place_events(task, found, ORIGIN if ORIGIN in found.column_names else KEY)


def _place_events(task: TableTask, found: pa.Table, by: str) -> Iterator[Share]:
    places = task.routes.places(prefixes(found[by].combine_chunks()))
    for number, some in _runs(places.files):
        events_there = found.take(pa.array(places.rows[some]))
        # The group's merge needs its own file only: a part stays small however many files there are.
        own = _own(task, number)
        how = Merge.TRUNCATED if own.routes.files and own.truncations else Merge.FILE
        yield (
            str(number),
            replace(own, merge=how),
            events_there.append_column("_home", pa.array(places.home[some])),
        )


def _probing(found: pa.Table, *, probe: bool) -> pa.Table:
    return found.append_column(PROBE, pa.repeat(pa.scalar(probe), found.num_rows))


def _keys_of_rests(task: TableTask, rows: pa.Table) -> Iterator[Share]:
    """The keys of these rows, for the files that leave them to the table's one group."""
    places = task.routes.places(prefixes(rows[KEY].combine_chunks()))
    for number, some in _runs(places.files):
        if number < len(task.routes.files):
            keys = rows.select([KEY]).take(pa.array(places.rows[some]))
            yield str(number), replace(_own(task, number), merge=Merge.REMAINDER), keys


def _later_events(task: TableTask, found: pa.Table, generation: Ints) -> Iterator[Share]:
    """Events that no row of a file can meet: at home in as many groups as there are births."""
    new = replace(task, routes=Routes.over(()), origins=None)
    by = ORIGIN if ORIGIN in found.column_names else KEY
    homes = replace(new.routes, births=task.routes.births).homes(prefixes(found[by].combine_chunks()))
    if ARRIVES in found.column_names:  # what a truncation took is nowhere any more
        found = _probing(found.drop_columns([ARRIVES]), probe=False)
    for number, some in _runs(homes):
        needed = np.unique(generation[some])
        ends = tuple(task.truncations[i] for i in needed if i < len(task.truncations))
        yield f"{NEW}{number}", replace(new, truncations=ends), _at_home(found.take(pa.array(some)))


def _later_nets(task: TableTask, nets: pa.Table) -> Iterator[Share]:
    new = replace(task, routes=Routes.over(()), truncations=(), merge=Merge.KEYLESS_LATER)
    homes = replace(new.routes, births=task.routes.births).homes(prefixes(nets[KEY].combine_chunks()))
    for number, some in _runs(homes):
        yield f"{NEW}{number}", new, nets.take(pa.array(some))


def _ending(nets: pa.Table, task: TableTask, generation: int) -> pa.Table:
    """The nets of a generation, each with the truncation that ends it."""
    ended = generation < len(task.truncations)
    end = task.truncations[generation] if ended else (None,) * len(END)
    kinds = dict.fromkeys(END, pa.int64()) | {"_transaction": task.schema.transaction.type}
    for (name, kind), value in zip(kinds.items(), end, strict=True):
        nets = nets.append_column(name, pa.array([value] * nets.num_rows, kind))
    return nets


def _own(task: TableTask, number: int) -> TableTask:
    return replace(task, routes=Routes.over(task.routes.files[number : number + 1]), origins=None)


def _at_home(found: pa.Table) -> pa.Table:
    everywhere: Flags = np.ones(found.num_rows, np.bool_)
    return found.append_column("_home", pa.array(everywhere))


def _runs(numbers: Ints) -> Iterator[tuple[int, Ints]]:
    """The positions of each number."""
    if not len(numbers):
        return
    order = np.argsort(numbers, kind="stable")
    bounds = np.flatnonzero(np.diff(numbers[order], prepend=-1))
    for low, high in zip(bounds, [*bounds[1:], len(order)], strict=True):
        yield int(numbers[order[low]]), order[low:high]
