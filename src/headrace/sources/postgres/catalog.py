"""The look at the catalog: what a table is, in a form that can be compared.

The stream alone cannot be trusted to tell of DDL: a rewriting ALTER TABLE, an enum label renamed, a
publication that loses the table send nothing when no row changes after them. So before each mark the
pipeline looks again, and a table that differs from its last look leaves the marks:

    look(connection, oids, publications)  ──►  {name: TableLook}     one statement, two where the
                                                                     tables use types of users
    differs(last, now)                    ──►  None, or what changed

A look holds all that can change what the stream or a copy of the table means, and nothing that
changes by itself (statistics, sizes): two looks at an untouched table are equal. The statement asks
for all tables at once and each table comes back as one JSON value, so that hundreds of tables take
milliseconds. Names of types are kept for people and not compared.

A new file node alone means nothing: TRUNCATE is in the stream, VACUUM FULL and CLUSTER move rows without
changing one. Two statements change rows behind the stream's back, and both leave more than a new file node:

    ALTER COLUMN ... TYPE ... USING     writes the column's row in the catalog, makes a new TOAST table
    SET UNLOGGED, writes, SET LOGGED    makes a new TOAST table; without one there is no trace, but the
                                        server forbids it for a table that a publication names

`candidates` lists what patterns are matched against, `sizes` what a copy will cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.sources.postgres.session import Session, query
from headrace.sources.postgres.types import TypeLook, column_of

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
    shown: str = field(compare=False)
    made: str = field(default="", compare=False)  # the transaction that wrote the column's row in the catalog


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """By which columns the stream tells old rows apart."""

    kind: str  # pg_class.relreplident: d default, n nothing, f full, i index
    index: int  # the index's oid, 0 for none
    key: tuple[str, ...]  # its columns, in order

    @property
    def full(self) -> bool:
        return self.kind == "f"


@dataclass(frozen=True, slots=True)
class Membership:
    """How one publication holds the table: by name, by schema, by an ancestor, or with all tables.

    `made` tells a membership from one that looks the same and was made later: what was written between
    the two is not in the stream. It names the publication's row, with the transaction that wrote it.
    """

    publication: str
    row_filter: str | None
    columns: tuple[int, ...] | None
    made: str
    named: bool = False  # the publication names this very table: the server keeps it logged


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
    bound: str | None  # of a partition
    memberships: tuple[Membership, ...]
    policies: bool  # row-level security is on for the table
    types: tuple[TypeLook, ...]  # the types of users that its columns reach
    toast: int = field(default=0, compare=False)  # the oid of its TOAST table, 0 for none

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


def differs(last: TableLook, now: TableLook) -> str | None:
    """What changed between two looks at a table, for a message; None where nothing did."""
    if replace(last, filenode=now.filenode) == now and not _rewritten(last, now):
        return None
    checks: tuple[tuple[bool, str], ...] = (
        (last.oid != now.oid, "the table was dropped and made again"),
        (last.name != now.name, f"the table was renamed to {now.name}"),
        (last.attributes != now.attributes, _columns_differ(last, now)),
        (last.types != now.types, "a type of its columns was altered"),
        (last.identity != now.identity, "its replica identity changed"),
        (last.memberships != now.memberships, _memberships_differ(last, now)),
        (last.ancestors != now.ancestors or last.bound != now.bound, "its place in a partition tree changed"),
        (last.persistence != now.persistence, "it was made logged or unlogged"),
        (_rewritten(last, now), "it was rewritten"),
        (last.policies != now.policies, "row-level security was switched on or off"),
    )
    return next((what for changed, what in checks if changed), "it was altered")


def _rewritten(last: TableLook, now: TableLook) -> bool:
    """Whether the rows may hold other values: a new file node, and not by TRUNCATE or VACUUM FULL alone."""
    proven = now.toast != 0 or any(membership.named for membership in now.memberships)
    return last.filenode != now.filenode and (_made(last) != _made(now) or not proven)


def is_news(last: TableLook, now: TableLook) -> bool:
    """Whether a look that does not differ shows anything that the next one must be compared with."""
    return last.filenode != now.filenode or _made(last) != _made(now)


def _made(look: TableLook) -> tuple[int, list[str]]:
    return look.toast, [attribute.made for attribute in look.attributes]


def _columns_differ(last: TableLook, now: TableLook) -> str:
    before = {a.number: a for a in last.attributes}
    after = {a.number: a for a in now.attributes}
    for number, attribute in before.items():
        later = after.get(number)
        if later is None:
            return f'column "{attribute.name}" was dropped'
        if later.name != attribute.name:
            return f'column "{attribute.name}" was renamed to "{later.name}"'
        if (later.type, later.typmod) != (attribute.type, attribute.typmod):
            return f'the type of column "{later.name}" changed from {attribute.shown} to {later.shown}'
        if later != attribute:
            return f'column "{later.name}" was altered'
    added = ", ".join(f'"{a.name}"' for number, a in after.items() if number not in before)
    return f"column {added} was added"


def _memberships_differ(last: TableLook, now: TableLook) -> str:
    if len(last.memberships) > len(now.memberships):
        return "it was taken out of the publication"
    return "its publication, row filter or column list changed"


# --- reading ------------------------------------------------------------------------------------

_LOOK = """
WITH chosen AS (
    SELECT p.oid, p.xmin, p.pubname, p.puballtables
      FROM pg_publication p WHERE p.pubname = ANY (%(publications)s::text[])
)
-- The column and not pg_relation_filenode(), which sees what was committed after the statement began.
SELECT c.oid::bigint, n.nspname, c.relname, c.relfilenode::bigint,
       c.relkind::text, c.relpersistence::text, c.relreplident::text, c.relrowsecurity,
       pg_get_expr(c.relpartbound, c.oid),
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
                     WHERE k.place <= i.indnkeyatts))
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
                   p.pubname, pg_get_expr(r.prqual, r.prrelid), r.prattrs::int2[],
                   concat_ws(' ', p.oid, p.xmin, r.oid, s.oid),
                   r.prrelid IS NOT DISTINCT FROM c.oid) ORDER BY p.pubname, r.prrelid)
          FROM chosen p
          CROSS JOIN LATERAL (
              SELECT c.oid AS relid
              UNION ALL SELECT a.relid::oid FROM pg_partition_ancestors(c.oid) a(relid)
                         WHERE c.relispartition AND a.relid <> c.oid) over
          LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid AND r.prrelid = over.relid
          LEFT JOIN pg_publication_namespace s ON s.pnpubid = p.oid
                -- As a scalar: a join would scan pg_class once for each table.
            AND s.pnnspid = (SELECT o.relnamespace FROM pg_class o WHERE o.oid = over.relid)
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
       (SELECT json_agg(l.enumlabel ORDER BY l.enumsortorder)
          FROM pg_enum l WHERE l.enumtypid = t.oid),
       (SELECT json_agg(json_build_array(
                   a.attnum, a.attname, a.atttypid::bigint, a.atttypmod) ORDER BY a.attnum)
          FROM pg_attribute a
         WHERE a.attrelid = t.typrelid AND t.typrelid <> 0 AND a.attnum > 0 AND NOT a.attisdropped)
  FROM pg_type t LEFT JOIN pg_type e ON e.oid = t.typelem
 WHERE t.oid IN (SELECT oid FROM reached)
"""


def look(
    connection: Session, oids: Sequence[int], publications: Sequence[str] = ()
) -> dict[TableName, TableLook]:
    """Look at these tables; one that no longer exists is absent from the answer."""
    rows = query(connection, _LOOK, {"oids": list(oids), "publications": list(publications)})
    used = {attribute[2] for row in rows for attribute in row[9] or ()}
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
    oid, schema, name, filenode, kind, persistence, identity, policies, bound = row[:9]
    attributes, index, toast, ancestors, memberships = row[9:]
    index_oid, key = index or (0, ())
    columns = tuple(Attribute(*attribute) for attribute in attributes or ())
    return TableLook(
        oid=oid,
        name=TableName(schema, name),
        filenode=filenode or 0,
        kind=kind,
        persistence=persistence,
        identity=ReplicaIdentity(identity, index_oid, tuple(key or ())),
        attributes=columns,
        ancestors=tuple(ancestors or ()),
        bound=bound,
        memberships=tuple(
            Membership(publication, row_filter, None if listed is None else tuple(listed), made, named)
            for publication, row_filter, listed, made, named in memberships or ()
        ),
        policies=policies,
        toast=toast,
        # What other tables of the same look reach must not matter: they come and go.
        types=_reached((column.type for column in columns if column.type not in _PLAIN), types),
    )


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
            labels=tuple(row[7] or ()),
            attributes=tuple((number, name, of, typmod) for number, name, of, typmod in row[8] or ()),
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
