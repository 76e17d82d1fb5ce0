"""Emptiness: which of the partitions that came into a tree brought no rows.

A partition may be attached with rows, and no message brings those. A partition without a page has none.
Asking for its size locks it as a reader does. So a partition that another session holds is not asked, and
marks omit its root meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import replace

from headrace.sources.postgres.catalog.locks import measure
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.catalog.table_def import TableEntry
from headrace.sources.postgres.session.statements import Session


def with_emptiness(
    connection: Session, entries: Iterable[TableEntry], now: Mapping[int, TableEntry]
) -> tuple[dict[int, TableEntry], frozenset[int]]:
    """The tables with their empty branches flagged, and those tables for which that can't be asked now."""
    asked = {
        branch.oid: branch.name
        for last in entries
        if last.oid in now
        for branch in attached_branches(last, now[last.oid])
        if branch.has_rows
    }
    if not asked:
        return dict(now), frozenset()
    found = measure(connection, asked)
    without = {oid for oid, size in found.sizes.items() if not size.pages}
    unknown = {oid for oid, name in asked.items() if name in found.busy}
    held = {oid for oid, entry in now.items() if any(branch.oid in unknown for branch in entry.tree)}
    return {oid: flag(entry, without) for oid, entry in now.items()}, frozenset(held)


def attached_branches(last: TableEntry, now: TableEntry) -> Iterable[Branch]:
    """The branches that were attached and not made in place, with everything beneath them."""
    before = {branch.oid for branch in last.tree}
    came = {branch.oid for branch in now.tree if branch.oid not in before and not branch.born}
    beneath = _with_beneath(came, now.tree)
    return [branch for branch in now.tree if branch.oid in beneath]


def _with_beneath(oids: Set[int], tree: Iterable[Branch]) -> Set[int]:
    branches, found = list(tree), set(oids)
    while more := {b.oid for b in branches if b.parent in found and b.oid not in found}:
        found |= more
    return found


def flag(entry: TableEntry, without: Set[int]) -> TableEntry:
    """Flag the empty branches of the table; a partitioned branch is empty if all its partitions are."""
    if not entry.tree:
        return entry

    def is_empty(branch: Branch) -> bool:
        beneath = _with_beneath({branch.oid}, entry.tree)
        return all(b.oid in without for b in entry.tree if b.oid in beneath and b.has_rows)

    roots = {b.oid for b in entry.tree if not b.has_rows}
    flagged = (replace(b, empty=is_empty(b) if b.oid in roots else b.oid in without) for b in entry.tree)
    return replace(entry, tree=tuple(flagged))
