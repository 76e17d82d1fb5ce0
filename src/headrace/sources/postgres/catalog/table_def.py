"""The look at the catalog: what a table is, in a form that can be compared.

The stream alone cannot be trusted to tell of DDL: a rewriting ALTER TABLE, an enum label renamed, a
publication that loses the table send nothing when no row changes after them. So before each mark the
pipeline looks again, and a table that differs from its last look leaves the marks (`alteration`):

    look(connection, oids, publications)  ──►  {name: TableLook}     one statement, two where the
                                                                     tables use types of users
    unfinished(connection, looks, since)  ──►  the tables that somebody may be changing just now

A look holds all that can change what the stream or a copy of the table means, and nothing that
changes by itself (statistics, sizes): two looks at an untouched table are equal. The statement asks
for all tables at once and each table comes back as one JSON value, so that hundreds of tables take
milliseconds.

lives       What may go from A to B and back to A between two looks is told by the transaction that wrote
            its row (xmin), as narrowly as the catalog allows: of pg_class it would be another after each
            GRANT and TRUNCATE. VACUUM, ANALYZE and VACUUM FULL of the catalog leave it alone; a server
            that was upgraded or restored from a dump is another server, and nothing is compared with it.
no waiting  Nothing here takes a lock that anybody's DDL conflicts with. pg_get_expr(), pg_get_indexdef(),
            pg_relation_size() and their like lock the table that they are asked about: a table that is
            held exclusively would make the look at all others wait.
hidden      DDL that has written its commit record, and waits for a synchronous standby, is in the stream
            while every look still shows the rows that it replaced. Those have an xmax (`replacing`).

`candidates` lists what patterns are matched against, `sizes` what a copy will cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from headrace.core.handoff import widen
from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.sources.postgres.catalog.types import TypeLook, column_of
from headrace.sources.postgres.session.statements import Session, query

ORDINARY, PARTITIONED = "r", "p"
PERMANENT = "p"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column as the catalog has it; `shown` is its type as the server writes it."""

    number: int
    name: str
    type: int
    typmod: int
    not_null: bool
    generated: str  # '' no, 's' stored, 'v' virtual
    shown: str
    made: str = ""  # the transaction that wrote the column's row in the catalog


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """By which columns the stream tells old rows apart."""

    kind: str  # pg_class.relreplident: d default, n nothing, f full, i index
    index: int  # the index's oid, 0 for none
    key: tuple[str, ...]  # its columns, in order
    constraint: int = 0  # the primary key's oid, which outlives a REINDEX; 0 for none

    @property
    def full(self) -> bool:
        return self.kind == "f"


@dataclass(frozen=True, slots=True)
class Membership:
    """How one publication holds the table: by name, by schema, by an ancestor, or with all tables.

    `made` tells a membership from one that looks the same and was made later: what was written between
    the two is not in the stream. It names the publication's row, with the transaction that wrote it, and
    the row that lists the table: no statement alters that one in place, so filter and list are as they were.
    `lives` does so for what makes the table a member without a row of its own: its place under an
    ancestor, its place in a schema. None is a record of before this was asked for.
    """

    publication: str
    filtered: bool
    columns: tuple[int, ...] | None
    made: str
    named: bool = False  # the publication names this very table: the server keeps it logged
    inherited: bool = False  # it is an ancestor that is the member
    by_schema: bool = False  # the publication holds the member's schema
    via_root: bool = False  # changes of partitions are sent under the name of an ancestor
    lives: str | None = None


@dataclass(frozen=True, slots=True)
class TableLook:
    """A table at one moment."""

    oid: int
    name: TableName
    filenode: int
    kind: str  # pg_class.relkind
    persistence: str  # p permanent, u unlogged, t temporary
    identity: ReplicaIdentity
    attributes: tuple[Attribute, ...]
    ancestors: tuple[int, ...]  # partitioned tables above it, the nearest first
    memberships: tuple[Membership, ...]
    policies: bool  # row-level security is on for the table
    types: tuple[TypeLook, ...]  # the types of users that its columns reach
    toast: int = 0  # the oid of its TOAST table, 0 for none
    # Transactions (their 32 bits) that replaced a row which this was read from: not over yet, or rolled back.
    replacing: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns that are mirrored: generated ones are the source's own business."""
        return tuple(a for a in self.attributes if not a.generated)


def schema_of(look: TableLook) -> TableSchema:
    """The table's columns and identity, as the lake will know them."""
    types = {known.oid: known for known in look.types}
    columns = tuple(column_of(a.name, a.type, a.typmod, a.shown, types) for a in look.columns)
    # A key with a generated column (possible with identity FULL) is not ours to use.
    key = look.identity.key if set(look.identity.key) <= {c.name for c in columns} else ()
    return TableSchema(columns=columns, key=key, full=look.identity.full)


def as_shown(schema: TableSchema, look: TableLook) -> TableSchema:
    """A recorded schema with the types as the server writes them now: a varchar may have become longer.

    All else stays as it was decided when the table was chosen.
    """
    shown = {attribute.name: attribute.shown for attribute in look.columns}
    columns = (replace(c, source_type=shown.get(c.name, c.source_type)) for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def identity_flaw(look: TableLook, server_version: int) -> str | None:
    """Why UPDATE and DELETE could not be published, or not read by us; None where they can.

    A table with such a flaw must not get into a publication that publishes updates: from then on the
    server would refuse the application's own statements.
    """
    identity = look.identity
    generated = {a.name for a in look.attributes if a.generated}
    if identity.full:
        if generated and server_version >= 180000:
            return "its replica identity FULL includes generated columns, which are not published"
        return None
    if identity.kind == "n":
        return "its replica identity is NOTHING"
    if not identity.key:
        return "it has neither a primary key nor a replica identity"
    if generated & set(identity.key):
        return "its replica identity includes a generated column, which is not published"
    return None


# --- reading ------------------------------------------------------------------------------------

_LOOK = """
WITH chosen AS (
    SELECT p.oid, p.xmin, p.xmax, p.pubname, p.puballtables, p.pubviaroot
      FROM pg_publication p WHERE p.pubname = ANY (%(publications)s::text[])
)
-- The column and not pg_relation_filenode(), which sees what was committed after the statement began.
SELECT c.oid::bigint, n.nspname, c.relname, c.relfilenode::bigint,
       c.relkind::text, c.relpersistence::text, c.relreplident::text, c.relrowsecurity,
       (SELECT json_agg(json_build_array(
                   a.attnum, a.attname, a.atttypid::bigint, a.atttypmod, a.attnotnull, a.attgenerated,
                   format_type(a.atttypid, a.atttypmod), a.xmin::text) ORDER BY a.attnum)
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
       c.reltoastrelid::bigint,
       CASE WHEN c.relispartition THEN
           (SELECT json_agg(x.relid::oid::bigint ORDER BY x.place)
              FROM pg_partition_ancestors(c.oid) WITH ORDINALITY x(relid, place)
             WHERE x.relid <> c.oid) END,
       (SELECT json_agg(json_build_array(
                   p.pubname, r.prqual IS NOT NULL, r.prattrs::int2[],
                   concat_ws(' ', p.oid, p.xmin, r.oid, s.oid),
                   r.prrelid IS NOT DISTINCT FROM c.oid, over.relid <> c.oid, s.oid IS NOT NULL, p.pubviaroot,
                   concat_ws('/', over.lives, d.xmin),
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
          LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = over.relid
          LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid
                -- As a scalar: a join would scan pg_class once for each table.
            AND s.pnnspid = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = over.relid)
          -- What says that the member is of its schema: SET SCHEMA alone writes it anew.
          LEFT JOIN LATERAL (
              SELECT n.xmin, n.xmax FROM pg_depend n
               WHERE s.oid IS NOT NULL
                 AND n.classid = 'pg_catalog.pg_class'::regclass AND n.objid = over.relid AND n.objsubid = 0
                 AND n.refclassid = 'pg_catalog.pg_namespace'::regclass OFFSET 0) d ON true
         WHERE r.oid IS NOT NULL OR s.oid IS NOT NULL OR (p.puballtables AND over.relid = c.oid))
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (%(oids)s::oid[])
"""

# Everything that a type reaches: elements, bases of domains, attributes of composites, subtypes of
# ranges. Built-in types never change and are known by oid; their arrays are asked for all the same,
# since an array is told by its pg_type row.
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
             WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped))
  FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
 WHERE t.oid IN (SELECT oid FROM reached)
"""


def look(
    connection: Session, oids: Sequence[int], publications: Sequence[str] = ()
) -> dict[TableName, TableLook]:
    """Look at these tables; one that no longer exists is absent from the answer."""
    rows = query(connection, _LOOK, {"oids": list(oids), "publications": list(publications)})
    used = {attribute[2] for row in rows for attribute in row[8] or ()}
    types = _types(connection, used)
    return {TableName(row[1], row[2]): _table(row, types) for row in rows}


def look_by_name(
    connection: Session, names: Iterable[TableName], publications: Sequence[str] = ()
) -> dict[TableName, TableLook]:
    """`look` for tables that are known by name only."""
    wanted = list(names)
    rows = query(
        connection,
        "SELECT c.oid::bigint FROM pg_class c"
        " JOIN pg_namespace n ON n.oid = c.relnamespace"
        " JOIN unnest(%s::text[], %s::text[]) w(schema, name)"
        " ON w.schema = n.nspname AND w.name = c.relname",
        [[name.schema for name in wanted], [name.name for name in wanted]],
    )
    return look(connection, [oid for (oid,) in rows], publications)


def _table(row: tuple[Any, ...], types: Mapping[int, TypeLook]) -> TableLook:
    oid, schema, name, filenode, kind, persistence, identity, policies = row[:8]
    attributes, index, toast, ancestors, memberships = row[8:]
    index_oid, key, constraint = index or (0, (), 0)
    columns = tuple(Attribute(*attribute) for attribute in attributes or ())
    # What other tables of the same look reach must not matter: they come and go.
    reached = _reached((column.type for column in columns if column.type not in _PLAIN), types)
    rows = [membership.pop() for membership in memberships or ()]
    return TableLook(
        oid=oid,
        name=TableName(schema, name),
        filenode=filenode or 0,
        kind=kind,
        persistence=persistence,
        identity=ReplicaIdentity(identity, index_oid, tuple(key or ()), constraint or 0),
        attributes=columns,
        ancestors=tuple(ancestors or ()),
        memberships=tuple(
            Membership(publication, filtered, None if listed is None else tuple(listed), *rest)
            for publication, filtered, listed, *rest in memberships or ()
        ),
        policies=policies,
        toast=toast,
        types=reached,
        replacing=_xids(rows).union(*(each.replacing for each in reached)),
    )


def _xids(texts: Iterable[str]) -> frozenset[int]:
    """Those that are written there; 0 is none."""
    return frozenset(int(xid) for text in texts for xid in text.split()) - {0}


def _types(connection: Session, used: Iterable[int]) -> dict[int, TypeLook]:
    wanted = [oid for oid in used if oid not in _PLAIN]
    if not wanted:
        return {}
    return {
        row[0]: TypeLook(
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
        )
        for row in query(connection, _TYPES, {"types": wanted})
    }


# Common built-in scalar types: with these alone a look is one statement.
_PLAIN = frozenset(
    (16, 17, 18, 19, 20, 21, 23, 25, 26, 114, 700, 701, 1042, 1043, 1082, 1083, 1114, 1184, 1186, 1266)
) | {1700, 2950, 3802}


def _reached(start: Iterable[int], types: Mapping[int, TypeLook]) -> tuple[TypeLook, ...]:
    """The types that a table's columns reach, each once, by oid."""
    found: dict[int, TypeLook] = {}
    ahead = list(start)
    while ahead:
        known = types.get(ahead.pop())
        if known is None or known.oid in found:
            continue
        found[known.oid] = known
        ahead += [known.base, known.element, known.subtype, *(of for _, _, of, _ in known.attributes)]
    return tuple(found[oid] for oid in sorted(found))


def unfinished(connection: Session, looks: Iterable[TableLook], xmin: int) -> frozenset[int]:
    """The tables (by oid) that DDL may have changed already where no look can show it.

    A row that was looked at was replaced by a transaction that was not over, or is not rolled back since.
    All before `xmin`, of a snapshot from before the look, were over: what they left of themselves on a row
    that is still there was rolled back, or a mere lock. Where several transactions held the row at once, the
    number is that of a multixact, which nothing shows: it is taken for either.
    """
    replaced = {look.oid: look.replacing for look in looks if look.replacing}
    if not replaced:
        return frozenset()
    numbers = sorted(frozenset().union(*replaced.values()))
    writers = [(n, n) for n in numbers] + query(connection, _WRITERS_AMONG, [numbers])
    low = sorted({xid for _, xid in writers})
    wide = dict(zip(low, widen(pa.array(low, pa.uint32()), xmin).to_pylist(), strict=True))
    recent = [xid for xid in wide.values() if xid >= xmin]
    alive = {xid for (xid,) in query(connection, _NOT_ROLLED_BACK, [recent])} if recent else set()
    pending = {number for number, xid in writers if wide[xid] in alive}
    return frozenset(oid for oid, named in replaced.items() if not named.isdisjoint(pending))


# Of the numbers that are those of multixacts (by what a row of this database may hold), the members that
# replaced the row and did not only lock it. CASE: of others the function knows nothing but an error.
_WRITERS_AMONG = """
SELECT x.number, m.xid::text::int8
  FROM unnest(%s::int8[]) x(number)
  JOIN pg_database d ON d.datname = current_database()
 CROSS JOIN LATERAL pg_get_multixact_members(
           CASE WHEN mxid_age(x.number::text::xid) BETWEEN 1 AND mxid_age(d.datminmxid)
                THEN x.number::text::xid END) m
 WHERE m.mode IN ('nokeyupd', 'upd')
"""

# CASE keeps the order: of a transaction that is to come the function knows nothing but an error. It is none,
# then; but an age is counted from our own transaction where we are in one.
_NOT_ROLLED_BACK = """
SELECT x.xid FROM unnest(%s::int8[]) x(xid)
 WHERE CASE WHEN age((x.xid & 4294967295)::text::xid) > 0
            THEN pg_xact_status(x.xid::text::xid8) IS DISTINCT FROM 'aborted'
            ELSE pg_current_xact_id_if_assigned() IS NOT NULL END
"""


# --- choosing and measuring ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Candidate:
    """A relation that a pattern may name."""

    oid: int
    name: TableName
    kind: str
    persistence: str


def candidates(connection: Session) -> list[Candidate]:
    """Every relation of users that has rows: tables of all kinds and views."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, n.nspname, c.relname, c.relkind::text, c.relpersistence::text"
        " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname <> 'information_schema'"
        " AND (n.nspname !~ '^pg_' OR n.nspname ~ '^pg_temp_') ORDER BY 2, 3",
    )
    return [Candidate(oid, TableName(schema, name), kind, how) for oid, schema, name, kind, how in rows]


@dataclass(frozen=True, slots=True)
class Size:
    """What a table holds: exact bytes and pages, and an estimate of its rows."""

    pages: int
    bytes: int  # with TOAST, without indexes
    rows: int


def sizes(connection: Session, oids: Sequence[int]) -> dict[int, Size]:
    """How big these tables are now. Rows follow the statistics' density; -1 pages of them means none."""
    rows = query(
        connection,
        "SELECT c.oid::bigint, pg_relation_size(c.oid) / s.block,"
        " pg_table_size(c.oid), c.reltuples::float8, c.relpages"
        " FROM pg_class c,"
        " (SELECT current_setting('block_size')::int AS block) s"
        " WHERE c.oid = ANY (%s::oid[]) AND pg_relation_size(c.oid) IS NOT NULL",
        [list(oids)],
    )
    return {oid: Size(pages, size, _rows(pages, tuples, known)) for oid, pages, size, tuples, known in rows}


# Without statistics: the server's own planner assumes about as many for a narrow row.
_ROWS_A_PAGE = 100


def _rows(pages: int, tuples: float, known_pages: int) -> int:
    if tuples >= 0 and known_pages > 0:
        return round(tuples / known_pages * pages)
    return pages * _ROWS_A_PAGE
