"""Definitions: the look at the catalog that reads the definitions of tables.

    read_entries(connection, oids, publications)  ──►  {name: TableEntry}     one statement, two where
                                                                              tables use types of users

The statement asks for all tables at once, and each table comes back as one JSON value, so a thousand tables
take a twentieth of a second. A caller that looks again and again passes an `EntryMemory`: it parses no text
twice.

no waiting  Nothing here takes a lock that conflicts with DDL. pg_get_expr(), pg_get_indexdef(),
            pg_relation_size() and the like lock the table that they are asked about. If that is locked
            exclusively, the look at all other tables would wait.

Candidates are the relations that a pattern may name. Preflight matches patterns against them.

Entry memory keeps results of the last looks, so that the next look parses only new texts:

    the text of a table, the types with it   ──►  its entry          `definitions.read_entries`
    the rows of the types                    ──►  the types          likewise
    a record of the lake, an entry           ──►  they do not differ `ddl.schema_check`

Each look still asks the server for everything. A result depends only on the inputs on its left, and is used
again only if their texts are equal, or if they are the same objects. Each connection has a memory of its own;
threads never share one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from psycopg.pq import TransactionStatus

from headrace.core.names import TableName
from headrace.sources.contract.values import Json
from headrace.sources.postgres.catalog.partition_tree import TREE, Branch
from headrace.sources.postgres.catalog.rights import ReadablePartitions
from headrace.sources.postgres.catalog.table_def import (
    Attribute,
    Membership,
    ReplicaIdentity,
    TableEntry,
    watched_columns,
)
from headrace.sources.postgres.position import Lsn
from headrace.sources.postgres.session.log_end import behind_all
from headrace.sources.postgres.session.refusals import CatalogMoved
from headrace.sources.postgres.session.statements import Session, query
from headrace.sources.postgres.types.columns import TypeEntry

_TRIES: Final = 4  # if objects are dropped while the statement runs

_ENTRIES = f"""
WITH chosen AS (
    SELECT p.oid, p.xmin, p.xmax, p.pubname, p.puballtables, p.pubviaroot,
           COALESCE(to_jsonb(p) ->> 'pubgencols', 'n') = 's' AS generated  -- PostgreSQL 18
      FROM pg_publication p WHERE p.pubname = ANY (%(publications)s::text[])
)
SELECT c.oid::bigint, json_build_array(
       -- The column and not pg_relation_filenode(), which sees what was committed after the statement began.
       c.oid::bigint, n.nspname, c.relname, c.relfilenode::bigint,
       c.relkind::text, c.relpersistence::text, c.relreplident::text, c.relrowsecurity,
       (SELECT json_agg(json_build_array(
                   a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attnotnull, a.attgenerated,
                   format_type(a.atttypid, a.atttypmod), a.xmin::text, a.atthasmissing,
                   -- Arrays of some types are delimited otherwise than those of text.
                   CASE WHEN length(a.attmissingval::text) <= 10000
                         AND (SELECT y.typdelim FROM pg_type y WHERE y.oid = a.atttypid) = ','
                        THEN (a.attmissingval::text::text[])[1] END) ORDER BY a.attnum)
          FROM pg_attribute a
         WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped),
       -- The index that identifies rows. With identity FULL the primary key still tells them apart.
       -- A deferrable one does not at every moment, and the server does not use it either.
       (SELECT json_build_array(i.indexrelid::bigint,
                   (SELECT json_agg(a.attname ORDER BY k.place)
                      FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(attnum, place)
                      JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                     WHERE k.place <= i.indnkeyatts),
                   (SELECT k.oid::bigint FROM pg_constraint k
                     WHERE k.conrelid = c.oid AND k.contype = 'p' AND k.conindid = i.indexrelid))
          FROM pg_index i
         WHERE i.indrelid = c.oid AND i.indisvalid AND i.indimmediate
           AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                   WHEN 'n' THEN false ELSE i.indisprimary END),
       c.reltoastrelid::bigint, c.relnatts,
       CASE WHEN c.relispartition THEN
           (SELECT json_agg(x.relid::oid::bigint ORDER BY x.place)
              FROM pg_partition_ancestors(c.oid) WITH ORDINALITY x(relid, place)
             WHERE x.relid <> c.oid) END,
       (SELECT json_agg(json_build_array(
                   p.pubname, r.prqual IS NOT NULL, r.prattrs::int2[],
                   concat_ws(' ', p.oid, p.xmin, r.oid, s.oid),
                   r.prrelid IS NOT DISTINCT FROM c.oid, over.relid <> c.oid, s.oid IS NOT NULL, p.pubviaroot,
                   concat_ws('/', over.lives, d.xmin),
                   -- Out of the expression's tree: to print it as SQL locks the table.
                   (SELECT json_agg(DISTINCT var[1]::int2)
                      FROM regexp_matches(r.prqual::text, ':varattno (-?[0-9]+) ', 'g') found(var)),
                   p.generated,
                   concat_ws(' ', p.xmax, r.xmax, s.xmax, over.replacing, d.xmax)
               ) ORDER BY p.pubname, r.prrelid, over.relid)
          FROM chosen p
          CROSS JOIN LATERAL (
              SELECT c.oid AS relid, NULL AS lives, NULL AS replacing
              UNION ALL SELECT * FROM (
                  -- With the rows of pg_inherits that lead from the table up to the ancestor.
                  SELECT a.relid::oid, string_agg(i.xmin::text, ' ') OVER below,
                         string_agg(i.xmax::text, ' ') OVER below
                    FROM pg_partition_ancestors(c.oid) WITH ORDINALITY a(relid, place)
                    LEFT JOIN LATERAL (
                        -- OFFSET: by the index; a join would scan all of it once for each table.
                        SELECT n.xmin, n.xmax FROM pg_inherits n WHERE n.inhrelid = a.relid OFFSET 0
                        ) i ON true
                   WHERE c.relispartition
                  WINDOW below AS (ORDER BY a.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                  ) up(relid, lives, replacing) WHERE up.relid <> c.oid) over
          -- OFFSET: by the index here too.
          LEFT JOIN LATERAL (
              SELECT m.oid, m.prrelid, m.prqual, m.prattrs, m.xmin, m.xmax FROM pg_publication_rel m
               WHERE m.prrelid = over.relid AND m.prpubid = p.oid OFFSET 0) r ON true
          LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid
                -- As a scalar: a join would scan pg_class once for each table.
            AND s.pnnspid = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = over.relid)
          -- What says that the member is of its schema: SET SCHEMA alone writes it anew.
          LEFT JOIN LATERAL (
              SELECT n.xmin, n.xmax FROM pg_depend n
               WHERE s.oid IS NOT NULL
                 AND n.classid = 'pg_catalog.pg_class'::regclass AND n.objid = over.relid AND n.objsubid = 0
                 AND n.refclassid = 'pg_catalog.pg_namespace'::regclass OFFSET 0) d ON true
         WHERE r.oid IS NOT NULL OR s.oid IS NOT NULL OR (p.puballtables AND over.relid = c.oid)),
       CASE WHEN c.relkind = 'p' THEN {TREE} END)::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%(oids)s::oid[])
"""


# All types that a type reaches: elements, bases of domains, attributes of composites, subtypes of ranges.
# Built-in types never change and are known by oid. Their arrays are read too: only the pg_type row tells
# that a type is an array.
_TYPES = """
WITH RECURSIVE reached(oid) AS (
    SELECT unnest(%(types)s::oid[])
    UNION
    SELECT next.oid FROM reached r JOIN pg_type t ON t.oid = r.oid
      CROSS JOIN LATERAL (
        SELECT t.typelem AS oid WHERE t.typelem <> 0
        UNION ALL SELECT t.typbasetype WHERE t.typbasetype <> 0
        UNION ALL SELECT a.atttypid FROM pg_attribute a
                   WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL SELECT g.rngsubtype FROM pg_range g
                   WHERE t.oid IN (g.rngtypid, g.rngmultitypid)) next
)
SELECT t.oid::bigint, t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       CASE WHEN e.typarray = t.oid THEN t.typelem::bigint ELSE 0 END, t.typdelim::text,
       COALESCE((SELECT g.rngsubtype::bigint FROM pg_range g
                  WHERE t.oid IN (g.rngtypid, g.rngmultitypid)), 0),
       (SELECT json_agg(json_build_array(l.enumlabel, concat_ws(' ', l.oid, l.xmin)) ORDER BY l.enumsortorder)
          FROM pg_enum l WHERE l.enumtypid = t.oid),
       (SELECT json_agg(json_build_array(
                   a.attnum, a.attname, a.atttypid::bigint, a.atttypmod) ORDER BY a.attnum)
          FROM pg_attribute a
         WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped),
       (SELECT r.relnatts FROM pg_class r WHERE r.oid = t.typrelid AND t.typrelid <> 0),
       concat_ws(' ',
           (SELECT string_agg(l.xmax::text, ' ') FROM pg_enum l WHERE l.enumtypid = t.oid),
           (SELECT r.xmax FROM pg_class r WHERE r.oid = t.typrelid AND t.typrelid <> 0),
           (SELECT string_agg(a.xmax::text, ' ') FROM pg_attribute a
             WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped)),
       -- A label that was renamed was written by a later command than others; so was an attribute that came
       -- or went. Where a row was deleted in vain (xmax), its cmin is the deleting command's number.
       CASE t.typtype
           WHEN 'e' THEN (SELECT count(*) > 1 AND count(DISTINCT concat_ws(' ', l.xmin, l.cmin)) = 1
                                 AND bool_and(l.xmax = '0') FROM pg_enum l WHERE l.enumtypid = t.oid)
           WHEN 'c' THEN (SELECT count(*) < 2 OR count(DISTINCT concat_ws(' ', a.xmin, a.cmin)) = 1
                                 AND bool_and(a.xmax = '0')
                            FROM pg_attribute a WHERE a.attrelid = t.typrelid AND a.attnum > 0)
           ELSE true END
  FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
 WHERE t.oid IN (SELECT oid FROM reached) ORDER BY t.oid
"""


def read_entries(
    connection: Session,
    oids: Sequence[int],
    publications: Sequence[str] = (),
    memory: EntryMemory | None = None,
) -> dict[TableName, TableEntry]:
    """Look at these tables; a table that no longer exists is absent from the answer.

    The statement prints names of types, which uses the catalog as it is now. So beside DDL it may fail over
    an object that is gone. Then it is run again; within a transaction, which the failure ends, the error is
    raised.
    """
    left = _TRIES
    while True:
        try:
            return _entries(connection, oids, publications, memory)
        except CatalogMoved:
            left -= 1
            if not left or connection.info.transaction_status != TransactionStatus.IDLE:
                raise


def _entries(
    connection: Session, oids: Sequence[int], publications: Sequence[str], memory: EntryMemory | None
) -> dict[TableName, TableEntry]:
    again = memory is not None
    memory = memory or EntryMemory()
    parameters = {"oids": list(oids), "publications": list(publications)}
    texts: dict[int, str] = dict(query(connection, _ENTRIES, parameters, prepare=again))
    rows = [memory.row(oid, text, _unread) for oid, text in texts.items()]
    types = _types(connection, frozenset().union(*(row.types for row in rows)), memory)
    entries = [row.entry(types, _table) for row in rows]
    memory.forget(oids, texts)
    return {entry.name: entry for entry in entries}


def _unread(text: str) -> TableRow:
    fields = json.loads(text)
    return TableRow(text, frozenset(attribute[2] for attribute in fields[8] or ()) - _PLAIN)


def read_entries_by_name(
    connection: Session, names: Iterable[TableName], publications: Sequence[str] = ()
) -> dict[TableName, TableEntry]:
    """`read_entries` for tables that are known by name only."""
    wanted = list(names)
    rows = query(
        connection,
        "SELECT c.oid::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) w(schema, name)"
        " ON w.schema = n.nspname AND w.name = c.relname",
        [[name.schema for name in wanted], [name.name for name in wanted]],
    )
    return read_entries(connection, [oid for (oid,) in rows], publications)


def _table(text: str, types: Mapping[int, TypeEntry]) -> TableEntry:
    row = json.loads(text)
    oid, schema, name, filenode, kind, persistence, identity, policies = row[:8]
    attributes, index, toast, width, ancestors, memberships, beneath = row[8:]
    index_oid, key, constraint = index or (0, (), 0)
    columns = tuple(Attribute(*attribute) for attribute in attributes or ())
    rows = [each.pop() for each in (*(memberships or ()), *(beneath or ()))]
    members = tuple(_membership(*membership) for membership in memberships or ())
    # Keep only types that this table reaches: the look has those of other tables too.
    watched = watched_columns(columns, members)
    used = (column.type for column in watched if column.type not in _PLAIN)
    reached = _reachable_types(used, types)
    # A list leaves out columns whose values must not leave the source: the record holds none of them.
    columns = tuple(each if each in watched else replace(each, value=None) for each in columns)
    shown = {column.name for column in watched}
    return TableEntry(
        oid=oid,
        name=TableName(schema, name),
        filenode=filenode or 0,
        kind=kind,
        persistence=persistence,
        identity=ReplicaIdentity(identity, index_oid, tuple(key or ()), constraint or 0),
        attributes=columns,
        ancestors=tuple(ancestors or ()),
        memberships=members,
        policies=policies,
        toast=toast,
        width=width,
        types=reached,
        tree=tuple(_branch(shown, *branch) for branch in beneath or ()),
        replacing=_xids(rows).union(*(each.replacing for each in reached)),
    )


def _membership(
    publication: str,
    filtered: bool,
    listed: list[int] | None,
    made: str,
    named: bool,
    inherited: bool,
    by_schema: bool,
    via_root: bool,
    lives: str,
    filter_columns: list[int] | None,
    generated: bool,
) -> Membership:
    return Membership(
        publication,
        filtered,
        None if listed is None else tuple(listed),
        made,
        named,
        inherited,
        by_schema,
        via_root,
        lives,
        tuple(filter_columns or ()),
        generated,
    )


def _branch(shown: Collection[str], *fields: Any) -> Branch:
    *first, key, missing = fields
    values = tuple((name, value if name in shown else None) for name, value in missing or ())
    return Branch(*[*first, tuple(key or ()), values])


def _xids(texts: Iterable[str]) -> frozenset[int]:
    """Parse the transaction ids in these texts; 0 means none."""
    return frozenset(int(xid) for text in texts for xid in text.split()) - {0}


def _types(connection: Session, wanted: Iterable[int], memory: EntryMemory) -> Mapping[int, TypeEntry]:
    """The types that these reach; the same mapping object as last time if nothing differs."""
    oids = sorted(wanted)
    rows = query(connection, _TYPES, {"types": oids}, prepare=True) if oids else []
    return memory.types(rows, _type)


def _type(row: Sequence[Any]) -> TypeEntry:
    return TypeEntry(
        oid=row[0],
        kind=row[1],
        base=row[2],
        base_typmod=row[3],
        element=row[4],
        delimiter=row[5],
        subtype=row[6],
        labels=tuple(label for label, _ in row[7] or ()),
        attributes=tuple((number, name, of, typmod) for number, name, of, typmod in row[8] or ()),
        label_lives=tuple(life for _, life in row[7] or ()),
        width=row[9] or 0,
        replacing=_xids([row[10]]),
        as_made=row[11],
    )


# Common built-in scalar types: if tables have no others, a look is one statement.
_PLAIN = frozenset(
    (16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266)
) | {1700, 2950, 3802}


def _reachable_types(start: Iterable[int], types: Mapping[int, TypeEntry]) -> tuple[TypeEntry, ...]:
    """The types that a table's columns reach, each once, by oid."""
    found: dict[int, TypeEntry] = {}
    ahead = list(start)
    while ahead:
        known = types.get(ahead.pop())
        if known is None or known.oid in found:
            continue
        found[known.oid] = known
        ahead += [known.base, known.element, known.subtype, *(of for _, _, of, _ in known.attributes)]
    return tuple(found[oid] for oid in sorted(found))


@dataclass(frozen=True, slots=True)
class PostgresCandidate:
    """A relation that a pattern may name."""

    oid: int
    name: TableName
    kind: str
    persistence: str


def candidates(connection: Session) -> list[PostgresCandidate]:
    """Every relation of users that has rows: tables of all kinds and views."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema'"
        " AND (n.nspname !~ '^pg_' OR n.nspname ~ '^pg_temp_') ORDER BY 2, 3",
    )
    return [
        PostgresCandidate(oid, TableName(schema, name), kind, how) for oid, schema, name, kind, how in rows
    ]


Types = Mapping[int, TypeEntry]
_STATEMENTS = 8  # different sets of roots that one session watches side by side
_SPARE = 100  # rows to remember beyond twice the last look's tables


@dataclass(slots=True)
class TableRow:
    """A table's text from the server, and its parsed entry."""

    text: str
    types: frozenset[int]  # of its columns, without the plain ones
    _with: Types | None = None
    _entry: TableEntry | None = None

    def entry(self, types: Types, read: Callable[[str, Types], TableEntry]) -> TableEntry:
        """The entry; parsed again if a type that it may reach has changed."""
        if self._entry is None or (self.types and self._with is not types):
            self._with, self._entry = types, read(self.text, types)
        return self._entry


@dataclass(slots=True)
class TreeWatch:
    """The partitioned tables that one session watches: was a tree changed and changed back between two looks?

    A partition that is attached with rows and goes again leaves no trace in the catalog, and no message. But
    the server tells every session when a root changes, because sessions cache its definition. The watch is a
    prepared statement that names the roots. After such a change the server analyzes it anew, and reads the
    literal 'now' in it again. So its result differs in the first look after a change.

        ATTACH, DETACH    in the log ── visible ── sessions are told ── locks released
        a look            locks ── the watch ── the catalog

    If a look finds no lock, the session was told of the change before it asks the watch. Other changes count
    as well (an index, ANALYZE of the root), and so do more changes than a session has room for. They only
    cost a moment:

        look ── attach ── commit ── detach ── look, P ── commit ── look
                                              changed              unchanged: one tree since P
    """

    _times: dict[frozenset[int], str] = field(
        default_factory=dict
    )  # of the analysis, by what the statement names
    _unchanged_from: dict[int, Lsn] = field(default_factory=dict)

    def look(self, connection: Session, roots: Mapping[int, Collection[int]]) -> Mapping[int, Lsn]:
        """Tell from which position on each root's tree is known not to have changed, up to now.

        Call it between the look at the locks and the one at the catalog. `roots`: by oid, each with the
        partitioned tables beneath it.
        """
        if not roots:
            return {}
        oids = frozenset(roots).union(*roots.values())
        at = _ask(connection, oids)
        if self._times.pop(oids, None) != at:
            self._unchanged_from |= dict.fromkeys(roots, behind_all(connection))
        # The statement that was asked last stands last.
        self._times[oids] = at
        for forgotten in list(self._times)[:-_STATEMENTS]:
            del self._times[forgotten]
        return {oid: self._unchanged_from[oid] for oid in roots}


def _ask(connection: Session, oids: Collection[int]) -> str:
    """Ask when the server analyzed the statement. It locks none of the tables, and needs no privilege."""
    names = ", ".join(f"regclass '{oid}'" for oid in sorted(oids))
    statement = f"SELECT (timestamptz 'now')::text WHERE ARRAY[{names}] IS NOT NULL"
    [(at,)] = query(connection, statement.encode(), prepare=True)
    return str(at)


@dataclass(slots=True)
class EntryMemory:
    """The tables and types of the last looks over one connection."""

    _rows: dict[int, TableRow] = field(default_factory=dict)
    _types: tuple[Sequence[tuple[Any, ...]], Types] = ((), {})
    _same: dict[str, tuple[Json, TableEntry]] = field(default_factory=dict)
    partitions: ReadablePartitions = field(default_factory=ReadablePartitions)
    trees: TreeWatch = field(default_factory=TreeWatch)

    def row(self, oid: int, text: str, unread: Callable[[str], TableRow]) -> TableRow:
        """The table's row; the remembered one if the server's text is the same."""
        row = self._rows.get(oid)
        if row is None or row.text != text:
            row = self._rows[oid] = unread(text)
        return row

    def types(self, rows: Sequence[tuple[Any, ...]], read: Callable[[Sequence[Any]], TypeEntry]) -> Types:
        """The types by oid; the same mapping object as before if the server's rows are the same."""
        known, types = self._types
        if list(known) != list(rows):
            types = {entry.oid: entry for entry in map(read, rows)}
            self._types = (rows, types)
        return types

    def forget(self, asked_oids: Collection[int], found_oids: Collection[int]) -> None:
        """If there are many rows, forget all tables but those of the last look."""
        if len(self._rows) > 2 * len(asked_oids) + _SPARE:
            self._rows = {oid: self._rows[oid] for oid in found_oids}

    def note_same(self, key: str, details: Json, entry: TableEntry) -> None:
        """Note that a record and an entry do not differ, and that nothing is news."""
        self._same[key] = (details, entry)

    def is_same(self, key: str, details: Json, entry: TableEntry | None) -> bool:
        """Tell whether `note_same` was called with these very objects."""
        known = self._same.get(key)
        return known is not None and known[0] is details and known[1] is entry

    def forget_records(self, keys: Iterable[str]) -> None:
        """If there are many others, forget all records but these."""
        wanted = set(keys)
        if len(self._same) > 2 * len(wanted) + _SPARE:
            self._same = {key: known for key, known in self._same.items() if key in wanted}
