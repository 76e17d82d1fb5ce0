"""Attachments: the partitions that ticks show, so that one that came and went between two looks is told of.

A partition that is attached with rows brings them without a statement, and takes them along when it goes. The
catalog keeps nothing of one that went. So each tick says, in the statement that takes it and by its snapshot,
what has come beneath roots that are captured since the tick before (`tick.attached`):

    look ── D ─── tick: p came ─── tick ─── look: p is not there      its rows are in the tick's time: the
                                                                      lake lacks them: copied anew
    look ── D ─── tick ─────────── tick ─── look                      it came and went between two ticks, or
                  within one transaction: no tick shows it            in vain: nothing is missing anywhere

    came       the row of its place in the tree, or of one above it, is of a transaction no older than all
               that ran at the tick before: a few may be named twice, none is left out. A snapshot names no
               subtransactions, so nothing finer can be asked
    D          the newest tick of the look that the record is of (`LOOKED`): what came by then was there
    owed       a root that somebody holds gets no record of a new look, while marks pass its ticks, which are
               forgotten: what they named is noted in the record that it has (`OWED`), and has to be in the
               tree that the next look finds

A tick that says nothing (NULL) was taken by a program that does not know of this: its roots are copied anew.
A root that waits for its copy is looked at when that is in. What came beneath it and went again meanwhile was
named by ticks that may be forgotten by then: such a root is in no mark from before that look (`unproven`).

Asked by `ddl.schema_check` within its look, written by `tick`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import Branch
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.queue.objects import Objects

LOOKED = "looked"  # of a root's record: the newest tick of its look
OWED = "owed"  # of a root's record: partitions that ticks named since, and who attached them

_IS_NEW = "((n.next - i.xmin::text::int8) & 4294967295) <= n.span"


def expression(objects: Objects) -> str:
    """The value of a tick that is being taken; its parameters are the queue's name, twice."""
    return f"""(
        WITH RECURSIVE n(next, span) AS (
            SELECT x.next, x.next - coalesce((
                SELECT pg_catalog.pg_snapshot_xmin(k.snapshot)::text::int8 FROM {objects.tick} k
                 WHERE k.queue = %s ORDER BY k.tick DESC LIMIT 1), 0)
              FROM (SELECT pg_catalog.pg_snapshot_xmax(
                    pg_catalog.pg_current_snapshot())::text::int8) x(next)),
        roots(oid) AS (
            SELECT DISTINCT w.relation FROM {objects.tracked_name} w
              JOIN pg_catalog.pg_partitioned_table p ON p.partrelid = w.relation WHERE w.queue = %s),
        beneath(root, oid, made, new) AS (
            SELECT r.oid, i.inhrelid, i.xmin, {_IS_NEW}
              FROM roots r JOIN pg_catalog.pg_inherits i ON i.inhparent = r.oid CROSS JOIN n
             WHERE EXISTS (SELECT FROM pg_catalog.pg_inherits i, n WHERE {_IS_NEW})
             UNION ALL
            SELECT b.root, i.inhrelid, i.xmin, b.new OR {_IS_NEW}
              FROM beneath b JOIN pg_catalog.pg_inherits i ON i.inhparent = b.oid CROSS JOIN n)
        SELECT coalesce(json_agg(json_build_array(b.root::int8, b.oid::int8, b.made::text::int8)
                                 ORDER BY b.root, b.oid), '[]')
          FROM beneath b WHERE b.new)"""


Places = frozenset[tuple[int, int]]  # partitions, each with the transaction that attached it


def shown_places(
    connection: Session, objects: Objects, newest: int, records: Mapping[str, TableDef]
) -> dict[str, Places | None]:
    """The places beneath roots, by key, that ticks show since their last looks; None where one does not say.

    Asked within the look. Of what a tick that is forgotten showed, the record tells.
    """
    looked = {key: table.details[LOOKED] for key, table in records.items() if LOOKED in table.details}
    if not looked:
        return {}
    rows = query(
        connection,
        f"SELECT t.tick, t.attached FROM {objects.tick} t WHERE t.queue = %s AND t.tick > %s AND t.tick <= %s"
        " AND coalesce(t.attached::text, '') <> '[]'".encode(),
        [objects.name, min(looked.values()), newest],
        prepare=True,
    )
    found: dict[str, Places | None] = {key: _owed_places(records[key]) for key in looked}
    for tick, attached in rows:
        for key, places in found.items():
            if tick > looked[key] and places is not None:
                beneath = None if attached is None else _beneath(records[key].number, attached)
                found[key] = None if beneath is None else places | beneath
    return found


def unproven(
    connection: Session, objects: Objects, newest: int, records: Mapping[str, TableDef]
) -> frozenset[str]:
    """The roots, by key, of which a tick is forgotten that came behind the look of the record."""
    following = {
        key: t.details[LOOKED] + 1 for key, t in records.items() if t.details.get(LOOKED, newest) < newest
    }
    if not following:
        return frozenset()
    # The oldest tick is not asked for: where a snapshot is open for days all that are gone lie before it.
    statement = f"SELECT t.tick FROM {objects.tick} t WHERE t.queue = %s AND t.tick = ANY (%s::int8[])"
    rows = query(
        connection, statement.encode(), [objects.name, sorted(set(following.values()))], prepare=True
    )
    there = {tick for (tick,) in rows}
    return frozenset(key for key, tick in following.items() if tick not in there)


def passing(
    places: Mapping[str, Places | None],
    records: Mapping[str, TableDef],
    trees: Mapping[int, Iterable[Branch]],
) -> frozenset[str]:
    """The roots, by key, beneath which a tick shows a partition that the look does not."""
    there = {number: {(each.oid, each.attached_by) for each in tree} for number, tree in trees.items()}
    return frozenset(
        key
        for key, those in places.items()
        if (tree := there.get(records[key].number)) is not None and (those is None or not those <= tree)
    )


def owing(table: TableDef, places: Places) -> TableDef | None:
    """The record of a root that is held, with what ticks show beneath it; None where it says that already."""
    if places == _owed_places(table):
        return None
    return replace(table, details={**table.details, OWED: sorted(map(list, places))})


def _owed_places(table: TableDef) -> Places:
    return frozenset((oid, made) for oid, made in table.details.get(OWED, ()))


def _beneath(root: int, attached: Iterable[tuple[int, int, int]]) -> Places:
    return frozenset((oid, made) for number, oid, made in attached if number == root)
