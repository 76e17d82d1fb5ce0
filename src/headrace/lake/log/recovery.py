"""Recovery after a power cut: which epochs are whole, and how torn ones are taken back.

    durable (written down)            maybe torn: nothing of it was acknowledged
    ... 40 ─── 41 │ 42 ─── 43 ─── 44
                  │  ▲      ▲ a file of it is empty: 43 and 44 go, the stream has them still
                  │  └ whole: it stays

After a kill, the operating system still has all that the writer wrote. After a power cut, everything is lost
that was not synced: files are empty or cut, or have no name, in any order. Plans are durable before anything
else of their epoch (`Store.put_if_absent`). So a takeover compares every plan after the last durable epoch
with the lake: the files that it adds, their sizes and ends; its lines in the tables' logs; its mark. The
first epoch that is not whole goes, and so do all after it:

    the intent     is written down first (`durable`): if this run dies, the next one continues the work; if
                   another process has finished it meanwhile, this one takes nothing more back
    tables         a torn line of a log gets a filler in its place, then one commit restores the table: no
                   version number is used twice, and a program that holds the table open sees that commit, or
                   misses files. If the columns changed, a commit before it sets the old ones
    new tables     made by an epoch that goes: their folders are emptied
    plans          each gets a withdrawal that changes nothing (`commit`): epochs stay gapless
    marks          one commit removes those that go; its own mark, at the last of their epochs, repeats
                   the last durable one

So a mark that was never acknowledged can be withdrawn, but only after a power cut; the stream brings its
transactions again. Whole checkpoints of Delta's logs stay, and damaged ones are deleted: all the log lines
that they summarize are still there.

A process never does this for a source that it owns already, nor on a store whose writes are durable at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from headrace.core.errors import Transient
from headrace.core.failpoint import failpoint
from headrace.core.names import TableName
from headrace.lake.format import datafile, delta_line, layout
from headrace.lake.format.plan import DataFile, Plan, TableStep, attempts
from headrace.lake.format.vector import FileRows, file_rows
from headrace.lake.log import durable, foreign, log_lines
from headrace.lake.log.durable import Durable
from headrace.lake.log.marks import Mark, Marks, mark_of, repeating, rows_of
from headrace.lake.log.table import PLAN_ID, LakeTable, Stamp, line_key
from headrace.lake.log.table import columns as columns_of
from headrace.lake.store.contract import Store

_FILLER = "/filler"
_COLUMNS = "/columns"

Whole = Callable[[Plan], bool]


def is_settled(store: Store, source: str) -> bool:
    """Tell whether there is nothing to judge: no epoch came after the last that is known to be durable."""
    if store.durable_at_once:
        return True
    known = durable.read(store, source)
    if known is None:
        return False
    return known.until is None and not store.exists(layout.plan_key(source, known.epoch + 1))


def recover(store: Store, source: str, whole: Whole = lambda plan: True) -> None:
    """Take back the epochs that a power cut has torn; `whole` judges the other files of an epoch."""
    if store.durable_at_once:
        return
    known = durable.read(store, source)
    if known is None:
        if not Marks(store, source).table.refresh() >= 0 and not attempts(store, source, 1):
            durable.write(store, source, Durable(0))
        return
    if known.until is None:
        last = _last_plan(store, source, known.epoch)
        first = _first_torn(store, source, known.epoch, last, whole)
        if first is None:
            return
        _see_that_it_lasts(store, source, known)
        known = Durable(first - 1, last, uuid.uuid4().hex)
        durable.write(store, source, known)
    failpoint("lake.recovery.before")
    _take_back(store, source, known)
    failpoint("lake.recovery.after")


# --- whole epochs -------------------------------------------------------------------------------


def _last_plan(store: Store, source: str, epoch: int) -> int:
    while store.exists(layout.plan_key(source, epoch + 1)):
        epoch += 1
    return epoch


def _first_torn(store: Store, source: str, known: int, last: int, whole: Whole) -> int | None:
    """Find the first epoch after the last durable one that is not whole."""
    published = _published_epochs(store, layout.marks_folder(source), known)
    folders: dict[str, int] = {layout.marks_folder(source): -1}
    durable_plan = attempts(store, source, known)[-1:]
    pinned = dict(durable_plan[0].versions) if durable_plan else {}
    for epoch in range(known + 1, last + 1):
        plan = attempts(store, source, epoch)[-1]
        marked = epoch in published
        # The last one may have been under way; then the next writer finishes it.
        if not marked and (epoch < last or None in published):
            return epoch
        steps_whole = all(
            foreign.firm(store, source, epoch, step) == step.base and _step_whole(store, step, plan, marked)
            for step in plan.steps
        )
        if not (steps_whole and whole(plan) and _pins_whole(store, source, plan, pinned)):
            return epoch
        pinned = dict(plan.versions)
        for step in plan.steps:
            folders.setdefault(step.path, step.base)
    for folder in folders if last > known else ():
        log_lines.spare_checkpoints(store, folder)
    return None


def _published_epochs(store: Store, folder: str, known: int) -> set[int | None]:
    """Find the epochs of whole marks after the known one; None is among them if a torn line ends them."""
    found: set[int | None] = set()
    versions = log_lines.versions(store, folder)
    base = _version_at(store, folder, known)
    for version in range(base + 1, max(versions, default=-1) + 1):
        line = log_lines.line(store, folder, version)
        if line is None or not log_lines.files_whole(store, folder, line.files):
            return {*found, None}
        # A plan's own step on this table is a commit of the same epoch; its mark comes after it.
        names = [path for path, _ in line.files]
        found |= {line.epoch for name in names if line.epoch and layout.epoch_of(name) == line.epoch}
    return found - {None}


def _pins_whole(store: Store, source: str, plan: Plan, before: Mapping[str, int]) -> bool:
    """Tell whether the versions that the mark before does not name are whole, whoever wrote them."""
    stepped = {step.path for step in plan.steps}
    for text, version in plan.versions.items():
        folder = layout.table_folder(source, TableName.parse(text))
        if version != before.get(text) and folder not in stepped:
            named = TableStep(folder, version)
            if foreign.firm(store, source, plan.epoch, named) != version:
                return False
    return True


def _step_whole(store: Store, step: TableStep, plan: Plan, marked: bool) -> bool:
    if not log_lines.files_whole(store, step.path, ((file.path, file.size) for file in step.add)):
        return False
    line = log_lines.line(store, step.path, step.base + 1)
    if line is not None:
        return not marked or line.plan_id == plan.plan_id
    return not marked and not store.exists(line_key(step.path, step.base + 1))


def _version_at(store: Store, folder: str, epoch: int) -> int:
    """Return the last version of a log that an epoch up to this one made; -1 if there is none."""
    for version in reversed(log_lines.versions(store, folder)):
        line = log_lines.line(store, folder, version)
        if line is not None and line.epoch is not None and line.epoch <= epoch:
            return version
    return -1


# --- taking back --------------------------------------------------------------------------------


def _take_back(store: Store, source: str, known: Durable) -> None:
    assert known.until is not None
    plans = {e: attempts(store, source, e) for e in range(known.epoch + 1, known.until + 1)}
    steps = [step for tried in plans.values() for plan in tried for step in plan.steps]
    bases: dict[str, int] = {}
    for epoch, tried in plans.items():
        for step in (step for plan in tried for step in plan.steps if step.path not in bases):
            bases[step.path] = foreign.firm(store, source, epoch, step)
    marks = layout.marks_folder(source)
    bases.pop(marks, None)
    for folder, base in bases.items():
        own = [step for step in steps if step.path == folder]
        _see_that_it_lasts(store, source, known)
        _restore(store, folder, base, own, _stamp(source, known))
    _see_that_it_lasts(store, source, known)
    for key in store.list(layout.checkpoints_folder(source)):
        if layout.plan_of(key)[0] > known.epoch:
            store.delete(key)
    if known.epoch == 0:
        _start_over(store, source, plans)
    else:
        mark = _withdraw(store, source, known, plans)
        failpoint("lake.recovery.between")
        _see_that_it_lasts(store, source, known)
        _restore_marks(store, source, known, mark, [step for step in steps if step.path == marks])
    _delete_files(store, known.epoch, steps)
    store.sync_all()
    _see_that_it_lasts(store, source, known)
    durable.write(store, source, Durable(0 if known.epoch == 0 else known.until))


def _see_that_it_lasts(store: Store, source: str, known: Durable) -> None:
    """Raise if another process has finished this work meanwhile: later epochs must not be taken back."""
    if durable.read(store, source) != known:
        raise _moved_error(source)


def _stamp(source: str, known: Durable) -> Stamp:
    assert known.until is not None
    return Stamp(app=f"headrace/{source}", epoch=known.until, plan_id=known.id)


def _restore(store: Store, folder: str, base: int, steps: list[TableStep], stamp: Stamp) -> None:
    """Restore a table to its contents at version `base`, by a commit on top of its newest version."""
    if base < 0:
        for key in store.list(folder):
            store.delete(key)
        return
    log_lines.spare_checkpoints(store, folder, above=base)
    if _restore_version(store, folder, base, stamp):
        return
    # Somebody may also have read versions that were lost, name and all.
    newest = max([*log_lines.versions(store, folder), *(step.base + 1 for step in steps)])
    log_lines.fill(store, folder, range(base + 1, newest + 1), _line(stamp, _FILLER))
    table = LakeTable(store, folder)
    table.refresh()
    older = table.at(base)
    if any(step.schema for step in steps) or not older.schema().equals(table.schema()):
        _put_columns(table, base, newest + 1, stamp)
    newest = table.refresh()
    then, now = older.contents(), table.contents()
    # Undo a torn line as well: somebody may have read it before it was torn.
    gone = (now | {file_rows(file) for step in steps for file in step.add}) - then
    removed = {path for step in steps for path in step.remove}
    again = {file for file in then if file not in now or file.path in removed}
    add = tuple(datafile.describe(store, folder, file) for file in _by_path(again))
    if any(file.vector for file in gone | again):
        _write(table, TableStep(folder, newest, add), stamp, _by_path(gone))
    else:
        _write(table, TableStep(folder, newest, add, tuple(file.path for file in _by_path(gone))), stamp)


def _by_path(files: Iterable[FileRows]) -> list[FileRows]:
    return sorted(files, key=lambda file: file.path)


def _write(table: LakeTable, step: TableStep, stamp: Stamp, undone: Sequence[FileRows] = ()) -> None:
    if not table.write(step, stamp, undone):
        raise _moved_error(table.folder)


def _moved_error(what: str) -> Transient:
    return Transient(
        "LAKE_RESTLESS",
        f'another program writes into "{what}" while a power cut is mended',
        hint="stop what else writes into this lake; the work resumes by itself",
    )


def _restore_version(store: Store, folder: str, base: int, stamp: Stamp) -> bool:
    lines = (
        log_lines.line(store, folder, version)
        for version in log_lines.versions(store, folder)
        if version > base
    )
    return any(line is not None and line.plan_id == stamp.plan_id for line in lines)


def _put_columns(table: LakeTable, base: int, version: int, stamp: Stamp) -> None:
    """Set the table's columns again: somebody may have read a line that replaced them, torn or not."""
    columns = {"metaData": columns_of(table.at(base))}
    line = _line(stamp, _COLUMNS, columns)
    if not table.store.put_if_absent(line_key(table.folder, version), line):
        raise _moved_error(table.folder)


def _line(stamp: Stamp, what: str, *actions: Mapping[str, object]) -> bytes:
    """Make a commit of ours that names no file."""
    txn = {"txn": {"appId": stamp.app, "version": stamp.epoch}}
    return delta_line.text(*actions, txn, **{PLAN_ID: stamp.plan_id + what})


def _start_over(store: Store, source: str, plans: Mapping[int, list[Plan]]) -> None:
    """Begin the source anew: nothing of it was ever durable, so there is no state to go back to."""
    for key in store.list(layout.marks_folder(source)):
        store.delete(key)
    for epoch in sorted(plans, reverse=True):
        for attempt in reversed(range(len(plans[epoch]))):
            store.delete(layout.plan_key(source, epoch, attempt))


def _withdraw(store: Store, source: str, known: Durable, plans: Mapping[int, list[Plan]]) -> Mark:
    """Give every plan that goes an attempt that does nothing; return the mark of the last one."""
    mark = _mark_at(store, source, known.epoch)
    for epoch, tried in plans.items():
        plan = repeating(mark, source, epoch, f"{known.id}.{epoch}", "withdraw")
        if tried[-1].plan_id != plan.plan_id:
            key = layout.plan_key(source, epoch, len(tried))
            store.put_if_absent(key, plan.to_json().encode())
    return mark_of(plan, datetime.now(UTC))


def _mark_at(store: Store, source: str, epoch: int) -> Mark:
    """Return the mark that was the newest at this epoch."""
    marks = Marks(store, source)
    folder = marks.table.folder
    base = _version_at(store, folder, epoch)
    log_lines.spare_checkpoints(store, folder, above=base)
    return marks.at(base)[-1]


def _restore_marks(store: Store, source: str, known: Durable, mark: Mark, steps: list[TableStep]) -> None:
    """Remove the marks that go, and publish one mark in their place."""
    folder = layout.marks_folder(source)
    stamp = _stamp(source, known)
    base = _version_at(store, folder, known.epoch)
    if _restore_version(store, folder, base, stamp):
        return
    # Lost commits may have used a version for each mark and for each step.
    newest = max([*log_lines.versions(store, folder), base + mark.epoch - known.epoch + len(steps)])
    log_lines.fill(store, folder, range(base + 1, newest + 1), _line(stamp, _FILLER))
    table = LakeTable(store, folder)
    newest = table.refresh()
    step = table.restoration(base) or TableStep(folder, newest)
    file = datafile.write(store, folder, layout.file_name(mark.epoch), rows_of([mark]))
    _write(table, replace(step, add=(*step.add, file)), stamp)


def _delete_files(store: Store, epoch: int, steps: Iterable[TableStep]) -> None:
    """Delete the data files of the epochs after this one: a program that has one open shall get an error."""
    files: list[tuple[str, DataFile]] = [(step.path, file) for step in steps for file in step.add]
    for folder, file in files:
        named = layout.epoch_of(file.path)
        if named is not None and named > epoch:
            store.delete(f"{folder}/{file.path}")
