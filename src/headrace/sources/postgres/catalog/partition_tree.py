"""Partition trees: the tables beneath a partitioned one, whose rows are sent under the name of that root.

    root (kind p, no rows of its own)          TableEntry.tree, a Branch each
     ├─ leaf                                    oid, file node, identity, who attached it
     └─ root of its own ─ leaf

A publication with `publish_via_partition_root` says nothing of what happens to the tree. ATTACH and DETACH,
DROP and TRUNCATE of a partition take rows away or bring some, and no message tells. `tree_differs` finds that
between two looks: partitions may come that brought nothing, and all others have to be as they were.

    born     CREATE TABLE ... PARTITION OF: the table's own row in the catalog was written by the transaction
             that put it into the tree, and no ATTACH has written its columns since. It had no rows.
             One whose rows in the catalog a transaction deleted that was rolled back is not known for it
    empty    an attached one whose file has no page: it had none either, or they are gone again
    oid      is a new table's file node, until it is truncated or rewritten

What even that does not show is in the stream: a partition that came and went between two looks, and one that
was written to by the very transaction that made it, and may have truncated it (`decoding.partitions`).

Read by `definitions`, compared by `alteration`, and by those who copy a root.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from headrace.core.names import TableName
from headrace.core.records import on_disk

LEAF, ROOT, FOREIGN = "r", "p", "f"  # pg_class.relkind of what a tree holds


@dataclass(frozen=True, slots=True)
class Branch:
    """A table beneath a root: a partition with rows, or one that is partitioned itself."""

    oid: int
    schema: str
    relation: str
    parent: int
    kind: str
    persistence: str
    filenode: int
    # The transaction (its 32 bits) that wrote its place in the tree.
    attached_by: int = field(metadata=on_disk("attached"))
    born: bool  # it was made as a partition
    leaving: bool  # DETACH CONCURRENTLY has begun, and is not over
    identity: str  # pg_class.relreplident
    key: tuple[str, ...]  # the columns of the index that identifies its rows
    missing: tuple[
        tuple[str, str | None], ...
    ]  # columns with a value in rows from before them, and that value
    # Its file has no page: asked of new ones alone.
    empty: bool = field(default=False, compare=False, metadata=on_disk(outside=True))

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.relation)

    @property
    def has_rows(self) -> bool:
        return self.kind != ROOT


# A subquery of the statement of `definitions`, whose table is c. By indexes: no lock, nobody is waited for.
# [0]..[12] are the fields of a Branch, [13] the transactions that replaced what was read.
TREE = """
(WITH RECURSIVE beneath(oid, parent, attached, replacing, leaving) AS (
     SELECT i.inhrelid, i.inhparent, i.xmin, i.xmax, i.inhdetachpending FROM pg_inherits i
      WHERE i.inhparent = c.oid
     UNION ALL
     SELECT i.inhrelid, i.inhparent, i.xmin, i.xmax, i.inhdetachpending
       FROM beneath u JOIN pg_inherits i ON i.inhparent = u.oid)
 SELECT json_agg(json_build_array(
            b.oid::bigint, n.nspname, b.relname, u.parent::bigint, b.relkind::text, b.relpersistence::text,
            b.relfilenode::bigint, u.attached::text::bigint,
            -- The row of ctid, which no statement writes anew; ATTACH writes that of each column of users.
            -- Where a row was deleted in vain (xmax), its cmin is the deleting command's number.
            u.attached = own.xmin AND own.xmax = '0' AND EXISTS (
                SELECT FROM pg_attribute a WHERE a.attrelid = b.oid AND a.attnum > 0
                           AND a.xmin = own.xmin AND a.xmax = '0' AND a.cmin = own.cmin),
            u.leaving, b.relreplident::text,
            (SELECT json_agg(a.attname ORDER BY k.place)
               FROM pg_index x CROSS JOIN unnest(x.indkey::int2[]) WITH ORDINALITY k(attnum, place)
               JOIN pg_attribute a ON a.attrelid = b.oid AND a.attnum = k.attnum
              WHERE x.indrelid = b.oid AND x.indisvalid AND x.indimmediate AND k.place <= x.indnkeyatts
                AND CASE b.relreplident WHEN 'i' THEN x.indisreplident
                                        WHEN 'n' THEN false ELSE x.indisprimary END),
            (SELECT json_agg(json_build_array(a.attname,
                        CASE WHEN length(a.attmissingval::text) <= 10000
                              AND (SELECT y.typdelim FROM pg_type y WHERE y.oid = a.atttypid) = ','
                             THEN (a.attmissingval::text::text[])[1] END) ORDER BY a.attnum)
               FROM pg_attribute a WHERE a.attrelid = b.oid AND a.attnum > 0 AND a.atthasmissing),
            concat_ws(' ', u.replacing, b.xmax)) ORDER BY b.oid)
   FROM beneath u JOIN pg_class b ON b.oid = u.oid JOIN pg_namespace n ON n.oid = b.relnamespace
   LEFT JOIN pg_attribute own ON own.attrelid = b.oid AND own.attnum = -1)
"""


def tree_differs(last: Sequence[Branch], now: Sequence[Branch]) -> str | None:
    """Say what may have happened to rows of the root that the stream does not tell; None for nothing."""
    before = {branch.oid: branch for branch in last}
    after = {branch.oid: branch for branch in now}
    for oid, branch in before.items():
        if (what := _branch_differs(branch, after.get(oid))) is not None:
            return what
    new = [branch for oid, branch in after.items() if oid not in before]
    return next(
        (f"the partition {each.name} was attached" for each in new if not _brought_nothing(each)), None
    )


def _branch_differs(before: Branch, after: Branch | None) -> str | None:
    name = before.name
    if after is None or after.leaving:
        return f"its partition {name} was detached or dropped"
    if (before.parent, before.attached_by) != (after.parent, after.attached_by):
        return f"its partition {name} was detached and attached again"
    if (before.kind, before.persistence) != (after.kind, after.persistence):
        return f"its partition {name} was made logged or unlogged"
    if before.filenode != after.filenode:
        return f"its partition {name} was truncated or rewritten"
    return None


def _brought_nothing(new: Branch) -> bool:
    """Tell whether all rows that the root has of it are in the stream."""
    if new.leaving:
        return False
    if new.kind == ROOT:
        # Whatever is attached with partitions brings theirs along: they all have to be empty.
        return new.born or new.empty
    untouched = new.kind == LEAF and new.persistence == "p" and new.filenode == new.oid
    return untouched and (new.born or new.empty)


def value_before(
    last: Sequence[Branch], now: Sequence[Branch], column: str
) -> tuple[bool, str | None] | None:
    """The value that a column has in rows from before it: is there one, and which; None where nobody knows.

    A root has no rows. In each of its partitions the value stands by itself.
    """
    known = {branch.oid for branch in last if branch.has_rows}
    found = [dict(branch.missing) for branch in now if branch.oid in known]
    if not found:
        return None if leaves(now) else (False, None)
    values = {(column in values, values.get(column)) for values in found}
    return values.pop() if len(values) == 1 else None


def identity_differs(full: bool, key: Sequence[str], leaf: Branch) -> str | None:
    """Say why old rows of a partition do not come as the root's layout announces them.

    The server logs what the partition's identity names, and sends it in the form that the root's asks for.
    """
    if leaf.identity == "f" or leaf.kind != LEAF:
        return None
    if full:
        return f"its partition {leaf.name} has not the replica identity FULL, as it has itself"
    if not leaf.key or leaf.identity == "n":
        return f"its partition {leaf.name} has no replica identity"
    if set(leaf.key) != set(key):
        return f"its partition {leaf.name} has another replica identity"
    return None


def leaves(tree: Iterable[Branch]) -> list[Branch]:
    """The partitions that hold rows."""
    return [branch for branch in tree if branch.has_rows]


def fingerprint(tree: Iterable[Branch]) -> int:
    """A number that tells which partitions are in the tree, and since when."""
    places = sorted((branch.oid, branch.attached_by, branch.leaving) for branch in tree)
    return zlib.crc32(repr(places).encode())
