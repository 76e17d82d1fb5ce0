"""Preflight of partitioned tables: the tables of a tree that are mirrored, and whether its root can be.

    a root that the patterns match               ─► one table of the lake; no table beneath it by itself
    a root that they exclude ('!public.orders')  ─► its partitions, each as a table of its own
    a root beneath a root that they match        ─► part of that root

A root is mirrored only if each of its partitions can be: the changes of an unlogged partition are not in the
log, and the rows of a foreign one are on another server.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.sources.contract.findings import Finding, Level, hint_of
from headrace.sources.postgres.catalog.partition_tree import FOREIGN, Branch, leaves
from headrace.sources.postgres.catalog.table_def import PARTITIONED, PERMANENT, TableEntry


def outside_roots(
    entries: Sequence[TableEntry], named_tables: Collection[TableName]
) -> tuple[list[TableEntry], list[Finding]]:
    """The tables that are inside no root among these, and an error for each inner table named outright."""
    roots = {entry.oid: entry.name for entry in entries if entry.kind == PARTITIONED}
    above = {e.name: root for e in entries if (root := next(filter(None, map(roots.get, e.ancestors)), None))}
    refused = [inside_root(name, root) for name, root in above.items() if name in named_tables]
    return [entry for entry in entries if entry.name not in above], refused


def beside_mirrored(entries: Sequence[TableEntry], mirrored_tables: Set[int]) -> list[TableEntry]:
    """The tables that could be mirrored beside the mirrored ones: inside none of these, and root of none."""
    apart = [
        entry
        for entry in entries
        if mirrored_tables.isdisjoint(entry.ancestors)
        and mirrored_tables.isdisjoint(branch.oid for branch in entry.tree)
    ]
    return outside_roots(apart, ())[0]


def inside_root(name: TableName, root: TableName | None) -> Finding:
    """The refusal of a partition whose rows come under another name."""
    under = "its root" if root is None else f"{root}"
    leave = "the root" if root is None else f"'!{root}'"
    return Finding(
        Level.ERROR,
        Misconfigured(
            "PG_PARTITION_INSIDE",
            f"{name} is a partition, and its rows are sent under the name of {under}",
            hint=f"choose {under} alone, or leave out {leave} to mirror partitions by themselves",
        ),
        table=name,
    )


def leaves_held(root: TableName, leaves: Collection[TableName]) -> Misconfigured:
    """The refusal of a root whose partitions are mirrored by themselves: they would get no more changes."""
    names = sorted(leaves)
    return Misconfigured(
        "PG_PARTITION_INSIDE",
        f"partitions of {root} are mirrored as tables of their own",
        detail=", ".join(map(str, names[:5])),
        hint=f"headrace tables drop {' '.join(map(str, names[:5]))}, and add {root} then",
    )


def check_tree(entry: TableEntry) -> Iterator[Finding]:
    """Say how a root is mirrored, and which partitions have rows that can't be followed."""
    if entry.kind == PARTITIONED:
        yield Finding(
            Level.INFO,
            Misconfigured(
                "PG_PARTITIONED",
                f"{entry.name} is mirrored as one table, with its {len(leaves(entry.tree))} partitions",
                detail="one that is truncated, detached, dropped, or attached with rows has it copied anew",
                hint=f"nothing to do; to mirror partitions by themselves leave it out: '!{entry.name}'",
            ),
            table=entry.name,
        )
    for branch in entry.tree:
        found = _unstreamable(entry, branch)
        if found is None:
            continue
        why, mend = found
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_PARTITION_UNFIT",
                f"{entry.name} cannot be mirrored as one table: not all of its rows are in the stream",
                detail=f"its partition {branch.name} {why}",
                hint=hint_of(mend) or f"leave it out to mirror its other partitions: '!{entry.name}'",
            ),
            mend=mend,
            table=entry.name,
        )


def check_without_lake(entry: TableEntry) -> Iterator[Finding]:
    """Refuse a root to a stream without a lake, which cannot copy the table anew when a partition goes."""
    if entry.kind == PARTITIONED:
        yield Finding(
            Level.ERROR,
            Misconfigured(
                "PG_ROOT_NEEDS_LAKE",
                f"{entry.name} is partitioned, and only a lake can follow its partitions",
                detail="rows come and go with a partition, and the stream does not say which",
                hint=f"name its partitions instead of it, '!{entry.name}' beside a wildcard; or mirror it "
                "into a lake",
            ),
            table=entry.name,
        )


def _unstreamable(root: TableEntry, branch: Branch) -> tuple[str, tuple[str, ...]] | None:
    if branch.leaving:
        names = {root.oid: root.name} | {each.oid: each.name for each in root.tree}
        parent = names[branch.parent]
        return "is being detached", (f"ALTER TABLE {parent} DETACH PARTITION {branch.name} FINALIZE",)
    if branch.kind == FOREIGN:
        return "is a foreign table", ()
    if branch.persistence != PERMANENT:
        return "is unlogged", (f"ALTER TABLE {branch.name} SET LOGGED",)
    return None
