"""Partition trees: the tables beneath a partitioned one, whose rows are sent under the name of that root.

    root (kind p, no rows of its own)          TableEntry.tree, a Branch each
     ├─ leaf                                    oid, file node, identity, who attached it
     └─ root of its own ─ leaf

With `publish_via_partition_root` the stream does not report changes of the tree. ATTACH, DETACH, DROP and
TRUNCATE of a partition add rows or remove them without a message. `tree_differs` finds this by comparing two
looks: new partitions must have brought no rows, and all others must be unchanged.

    born     CREATE TABLE ... PARTITION OF: the transaction that put the table into the tree wrote its row in
             the catalog, and no ATTACH has written its columns since. So it had no rows. If a transaction
             that rolled back had deleted its catalog rows, this can't be told, and it does not count as born
    empty    an attached partition whose file has no page: it had no rows, or they are gone again
    oid      equals the file node of a new table, until that is truncated or rewritten

Two cases show only in the stream (`decode.changes.partitions`): a partition that came and went between two
looks, and a partition that the transaction which made it also wrote to, and may have truncated.

`definitions` reads the tree; `ddl.alteration` and the copies of a root compare it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from headrace.core.names import TableName
from headrace.core.records import on_disk

LEAF, ROOT, FOREIGN = "r", "p", "f"  # pg_class.relkind of the tables in a tree


@dataclass(frozen=True, slots=True)
class Branch:
    """A table beneath a root: a partition with rows, or a partitioned table."""

    oid: int
    schema: str
    relation: str
    parent: int
    kind: str
    persistence: str
    filenode: int
    # The 32-bit id of the transaction that wrote its place in the tree.
    attached_by: int = field(metadata=on_disk("attached"))
    born: bool  # it was made as a partition
    leaving: bool  # DETACH CONCURRENTLY has begun and not ended
    identity: str  # pg_class.relreplident
    key: tuple[str, ...]  # the columns of the index that identifies its rows
    missing: tuple[tuple[str, str | None], ...]  # columns that older rows have a value for, and that value
    # Its file has no page; known of new branches only.
    empty: bool = field(default=False, compare=False, metadata=on_disk(outside=True))

    @property
    def name(self) -> TableName:
        return TableName(self.schema, self.relation)

    @property
    def has_rows(self) -> bool:
        return self.kind != ROOT


# A subquery of the statement in `definitions`; c is the table there. It reads by indexes, takes no lock and
# waits for nobody. [0]..[12] are the fields of a Branch, [13] the transactions that replaced these rows.
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
    """Say what may have changed rows of the root without a message in the stream; None for nothing."""
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
    """Tell whether a new branch brought the root no rows that are not in the stream."""
    if new.leaving:
        return False
    if new.kind == ROOT:
        # An attached partitioned table brings its partitions: they must all be empty.
        return new.born or new.empty
    untouched = new.kind == LEAF and new.persistence == "p" and new.filenode == new.oid
    return untouched and (new.born or new.empty)


def value_before(
    last: Sequence[Branch], now: Sequence[Branch], column: str
) -> tuple[bool, str | None] | None:
    """The value that a column has in older rows: is there one, and which; None if it is unknown.

    A root has no rows, so each of its partitions has a value of its own.
    """
    known = {branch.oid for branch in last if branch.has_rows}
    found = [dict(branch.missing) for branch in now if branch.oid in known]
    if not found:
        return None if leaves(now) else (False, None)
    values = {(column in values, values.get(column)) for values in found}
    return values.pop() if len(values) == 1 else None


def identity_differs(full: bool, key: Sequence[str], leaf: Branch) -> str | None:
    """Say why old rows of a partition do not come as the root's layout announces; None if they do.

    The server logs the columns of the partition's identity, and sends them in the form of the root's.
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


def without_values(branch: Branch, hides: Callable[[str], bool]) -> Branch:
    """The branch without the values that older rows have in some columns."""
    missing = tuple((name, None if hides(name) else value) for name, value in branch.missing)
    return replace(branch, missing=missing)


def fingerprint(tree: Iterable[Branch]) -> int:
    """A number that changes with the partitions of the tree, and when one is attached again."""
    places = sorted((branch.oid, branch.attached_by, branch.leaving) for branch in tree)
    return zlib.crc32(repr(places).encode())
