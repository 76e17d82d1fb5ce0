"""DDL between ticks: for each column that came or went, the ticks between which it did.

The catalog keeps the row of a dropped column, as the statement that dropped it wrote it. So the row's xmin is
that transaction, or a subtransaction of it. The row of an added column may have been written again by a later
statement. Then the column was there before that, which is enough to know here. But if that statement gave it
another type, older rows were printed under a type that no look shows (`following`). Three things prove that
it did not:

    as_added      the row is the one of ADD COLUMN, which writes the table's row in the same command; a
                  default is written in the next command, and the column's row once more after that
    as_toasted    the table got its TOAST table after the row was written, and the other type would have
                  needed one too
    ahead_of      a later command of the same transaction added another column: rows with that one were
                  printed after the last write of this one's row. After `ADD a text, ADD b text`, in one
                  statement or in two, only rows with a and without b are in doubt, and only that
                  transaction can have written such rows

A snapshot names running transactions, but no subtransactions. So from a number alone follows

    not seen    if it is not below the snapshot's xmax, or is in its list: then it is no subtransaction
    seen        if it is below the snapshot's xmin; or an earlier snapshot lists it and this one does not

and otherwise nothing. Everything that the look sees is also seen by the second tick after the newest one that
the look shows: its statement began after the first of the two had committed, which was after the look.

`schema_check` calls this within the transaction of its look.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.batch import TickBatch, TxidSnapshot
from headrace.sources.queue.decode.layouts import DdlSpan
from headrace.sources.queue.tick import Tick
from headrace.sources.queue.upstream import Objects, QueueUpstream

_CYCLE = 1 << 32
_FIRST = 3  # smaller numbers are no transactions
_FAR = 1 << 31  # 32 bits are ambiguous for transactions further back


@dataclass(frozen=True, slots=True)
class TickInterval:
    """The ticks between which a transaction ended: the last one before its end, and the first one after."""

    before: int
    after: int | None  # None: no tick of the look shows it


@dataclass(frozen=True, slots=True)
class Ddl:
    """The columns that came and went, by their tables' oids, with the ticks."""

    moments: Mapping[int, Mapping[int, TickInterval]]
    ahead: int  # a tick that shows everything that the look shows
    as_added: frozenset[tuple[int, int]] = frozenset()  # see above; columns by table and number
    as_toasted: frozenset[tuple[int, int]] = frozenset()
    ahead_of: Mapping[tuple[int, int], int] = field(default_factory=dict)  # with the later column's number
    cast: frozenset[int] = frozenset()  # types that a column may get without a rewrite of the table

    def spans(self, upstream: QueueUpstream, oid: int, ahead: int | None = None) -> dict[int, DdlSpan]:
        """The spans of one table's columns; `ahead` is a tick that was taken after the look."""
        bound = self.ahead if ahead is None else min(ahead, self.ahead)
        return {
            number: DdlSpan(
                -1 if moment.before == 0 else upstream.log.time(moment.before),
                upstream.log.time(bound if moment.after is None else moment.after),
            )
            for number, moment in self.moments.get(oid, {}).items()
        }


# REVOKE also writes a column's row together with the table's, if the column had rights of its own.
_WRITTEN = """
SELECT a.attrelid::int8, a.attnum, a.xmin::text::int8,
       a.xmin = c.xmin AND a.xmax = '0' AND c.xmax = '0' AND a.attacl IS NULL
       AND (a.cmin = c.cmin OR a.atthasmissing AND EXISTS (
            SELECT FROM pg_catalog.pg_attrdef d
             WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND d.xmin = a.xmin AND d.xmax = '0'
               AND d.cmin::text::int8 = c.cmin::text::int8 + 1
               AND a.cmin::text::int8 = c.cmin::text::int8 + 2)),
       a.xmax = '0' AND EXISTS (
            SELECT FROM pg_catalog.pg_attribute o
             WHERE o.attrelid = c.reltoastrelid AND o.attnum = 1 AND o.xmin = a.xmin AND o.xmax = '0'
               AND o.cmin::text::int8 > a.cmin::text::int8),
       a.xmin = c.xmin AND a.xmax = '0' AND c.xmax = '0' AND a.cmin::text::int8 < c.cmin::text::int8
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid
  JOIN unnest(%s::oid[], %s::int2[]) w(relation, number) ON a.attrelid = w.relation AND a.attnum = w.number
"""
# User-defined binary casts; the server's own are known (`following`).
_CASTS = """
SELECT DISTINCT casttarget::int8 FROM pg_catalog.pg_cast WHERE castmethod = 'b' AND oid >= 16384
"""


def read(
    connection: Session, upstream: QueueUpstream, newest: Tick, columns: Mapping[int, Collection[int]]
) -> Ddl:
    """Read when the rows of these columns (numbers, by the table's oid) were written; call it in the look."""
    wanted = [(oid, number) for oid, numbers in columns.items() for number in numbers]
    if not wanted:
        return Ddl({}, newest.number + 2)
    [(reached,)] = query(
        connection,
        "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::pg_catalog.text::int8",
    )
    written: dict[int, dict[int, int]] = {}
    added: set[tuple[int, int]] = set()
    toasted: set[tuple[int, int]] = set()
    earlier: set[tuple[int, int]] = set()
    columns_of = [list(each) for each in zip(*wanted, strict=True)]
    for oid, number, xmin, as_added, as_toasted, is_earlier in query(connection, _WRITTEN, columns_of):
        if xmin >= _FIRST:
            written.setdefault(oid, {})[number] = reached - ((reached - xmin) % _CYCLE)
        if as_added:
            added.add((oid, number))
        if as_toasted:
            toasted.add((oid, number))
        if is_earlier:
            earlier.add((oid, number))
    xids = [xid for each in written.values() for xid in each.values()]
    ticks = _ticks(connection, upstream, min(xids, default=reached))
    if ticks and reached - ticks[0][1].xmin >= _FAR:
        return Ddl({}, newest.number + 2)
    moments = {oid: {n: moment_of(xid, ticks) for n, xid in each.items()} for oid, each in written.items()}
    casts = frozenset(target for (target,) in query(connection, _CASTS))
    ahead_of = _ahead_of(earlier, added)
    return Ddl(moments, newest.number + 2, frozenset(added), frozenset(toasted), ahead_of, casts)


def _ahead_of(
    earlier: Collection[tuple[int, int]], added: Collection[tuple[int, int]]
) -> dict[tuple[int, int], int]:
    """For each earlier column, the first column that was added after the last write of its row."""
    later = {column: [n for oid, n in added if oid == column[0] and n > column[1]] for column in earlier}
    return {column: min(numbers) for column, numbers in later.items() if numbers}


def _ticks(connection: Session, upstream: QueueUpstream, oldest: int) -> list[tuple[int, TxidSnapshot]]:
    """The tick that this lake has passed, and the later ones that may show the end of a transaction."""
    objects = upstream.objects
    rows = query(
        connection,
        f"SELECT t.tick, t.snapshot::pg_catalog.text FROM {objects.tick} t, coalesce("
        f" (SELECT r.tick FROM {objects.reader} r WHERE r.queue = %(queue)s AND r.lake = %(lake)s), 0)"
        " AS passed(tick) WHERE t.queue = %(queue)s AND (t.tick = passed.tick OR t.tick > passed.tick"
        " AND t.tick >= coalesce("
        f" (SELECT k.tick FROM {objects.tick} k WHERE k.queue = %(queue)s"
        "  AND pg_catalog.pg_snapshot_xmax(k.snapshot)::pg_catalog.text::int8 <= %(oldest)s"
        "  ORDER BY k.tick DESC LIMIT 1), 0)) ORDER BY t.tick".encode(),
        {"queue": upstream.queue, "lake": upstream.lake, "oldest": oldest},
    )
    return [(number, TxidSnapshot.parse(text)) for number, text in rows]


def moment_of(xid: int, ticks: Sequence[tuple[int, TxidSnapshot]]) -> TickInterval:
    """Find the ticks around the end of a transaction; `xid` may be one of its subtransactions."""
    before, ran = 0, False
    for number, snapshot in ticks:
        if xid >= snapshot.xmax:
            before = number
        elif xid in snapshot.xip:
            before, ran = number, True
        elif ran or xid < snapshot.xmin:
            return TickInterval(before, number)
    return TickInterval(before, None)


# A quoted field. The number of commas outside of quotes is one less than that of the fields. It need not be
# right for every text: the decoder counts again.
_QUOTED = r'"(?:[^"\\]|\\.|"")*"'
_LONG = 1 << 26  # bytes of a row; longer ones are not examined, as an expression can't take 256 MB


def has_rows_of(connection: Session, objects: Objects, batch: TickBatch, oid: int, count: int) -> bool:
    """Tell whether a batch has a row of a table with so many fields, or one that is too long to examine."""
    events = batch.query(objects, "e.relation, e.diff, e.row")
    rows = query(
        connection,
        f"SELECT EXISTS (SELECT FROM ({events}) e, LATERAL (SELECT CASE WHEN octet_length(e.row) <= %s"
        " THEN regexp_replace(e.row, %s, '', 'g') END OFFSET 0) b(bare)"
        " WHERE e.relation = %s AND e.diff IN (1, -1)"
        " AND coalesce(length(bare) - length(replace(bare, ',', '')) + 1 = %s, true))".encode(),
        [_LONG, _QUOTED, oid, count],
    )
    return rows == [(True,)]
