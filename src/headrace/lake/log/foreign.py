"""Undo another program's last commits to one of our tables if a power cut has torn them.

    ours ─── ours ─── OPTIMIZE ─── OPTIMIZE          a torn line, or a whole one of which a file is torn:
     6        7        8 torn       9                8 gets a line that does nothing, and 10 brings back what
                                                     the table held at 7, as the same rows in other files

Such a program does not sync the files that it writes into a directory. We sync them before we acknowledge
anything that we write on top (`syncing.Syncing.forget`). So a torn commit behind our last version was never a
part of ours. If the commit may be ours, leave it: the disk broke its fsync promise.

The commits made here are not marked as ours: earlier whole commits of such a program are judged as always
(`commit.plan_base`).
"""

from __future__ import annotations

from collections.abc import Iterator

from headrace.core.names import TableName
from headrace.lake.format import delta_line, layout
from headrace.lake.format.plan import TableStep, attempts
from headrace.lake.log import log_lines
from headrace.lake.log.marks import Marks
from headrace.lake.log.table import LakeTable, columns, line_key
from headrace.lake.log.table_errors import TornLog
from headrace.lake.store.contract import Store


def is_newest(table: LakeTable) -> bool:
    """Tell whether another program made the newest version of a table."""
    entry = table.entry(table.version) if table.version >= 0 else None
    return entry is not None and entry.plan_id is None


def open_table(store: Store, source: str, folder: str) -> LakeTable:
    """Open a table after undoing torn commits of other programs; our own torn ones are undone by now."""
    found, torn = LakeTable(store, folder), None
    try:
        found.refresh()
        others = is_newest(found)
    except TornLog as error:
        others, torn = True, error
    if others and undo(store, source, folder):
        found, torn = LakeTable(store, folder), None
        found.refresh()
    if torn is not None:
        raise torn
    return found


def undo(store: Store, source: str, folder: str) -> bool:
    """Undo torn commits of other programs; tell whether there were any."""
    own = None if store.durable_at_once else _last_own(store, source, folder)
    if own is None:
        return False
    newest = max(log_lines.versions(store, folder), default=own)
    torn = next((at for at in range(own + 1, newest + 1) if not log_lines.is_whole(store, folder, at)), None)
    if torn is None:
        return False
    log_lines.spare_checkpoints(store, folder, above=torn - 1)
    log_lines.fill(store, folder, range(torn, newest + 1), delta_line.text())
    table = LakeTable(store, folder)
    table.refresh()
    step = table.restoration(torn - 1)
    if step is not None:
        store.put_if_absent(line_key(folder, newest + 1), delta_line.text(*_actions(table, step, torn - 1)))
    return True


def firm(store: Store, source: str, epoch: int, step: TableStep) -> int:
    """Find the last whole version for an epoch's step: its base, or one below another program's commits."""
    base = log_lines.line(store, step.path, step.base)
    if step.base < 0 or (base is not None and base.plan_id is not None):
        return step.base
    own = _last_own(store, source, step.path, epoch - 1)
    others = range(step.base + 1 if own is None else own + 1, step.base + 1)
    return next((at - 1 for at in others if not log_lines.is_whole(store, step.path, at)), step.base)


def _last_own(store: Store, source: str, folder: str, until: int | None = None) -> int | None:
    """Find the last version of a table that is ours, by plans or the newest mark; None if neither tells."""
    epochs = {layout.plan_of(key)[0] for key in store.list(layout.plans_folder(source))}
    for epoch in sorted(epochs if until is None else {e for e in epochs if e <= until}, reverse=True):
        steps = [step for plan in attempts(store, source, epoch) for step in plan.steps]
        own = [step.base + 1 for step in steps if step.path == folder]
        if own:
            return max(own)
    mark = Marks(store, source).newest() if until is None else None
    versions = {} if mark is None else mark.versions
    named = {layout.table_folder(source, TableName.parse(text)): at for text, at in versions.items()}
    return named.get(folder)


def _actions(table: LakeTable, step: TableStep, base: int) -> Iterator[delta_line.Action]:
    """Make the actions of a pure rewrite: equal rows in other files."""
    if step.schema is not None:
        yield {"metaData": columns(table.at(base))}
    for path in step.remove:
        yield delta_line.remove(path, changes=False, vector=table.files()[path].vector)
    for file in step.add:
        yield delta_line.add(file, changes=False)
