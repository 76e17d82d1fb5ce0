"""The definition of a table, in a form that can be compared.

The stream does not reliably report DDL. A rewriting ALTER TABLE, a renamed enum label, or a publication that
loses the table sends nothing if no row changes afterwards. So before each mark the pipeline looks again
(`definitions`), and a table that differs from its last look leaves the marks (`ddl.alteration`).

A look holds everything that decides the meaning of the stream or of a copy, and nothing that changes by
itself (statistics, sizes). So two looks at an untouched table are equal.

lives       A fact may change from A to B and back to A between two looks. The id of the transaction that
            wrote its row (xmin) shows this. Rows are chosen as narrowly as possible: GRANT and TRUNCATE
            give pg_class a new xmin. VACUUM, ANALYZE and VACUUM FULL of the catalog keep it. A server that
            was upgraded or restored from a dump is another server, and nothing is compared with it.
hidden      DDL may be in the stream while a look still shows the rows that it replaced. The xmax of these
            rows shows this (`replacing`; `ddl.schema_check` asks about it).

A look is also a record in the lake's catalog. It must outlive the process: the first look of a new run is
compared with the record, which finds DDL that happened while there was no run.

A record of an older release may lack fields. It is read as a look in which they are None (`ddl.alteration`
says what is compared instead), and replaced at the first look that shows more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.core.records import from_record, on_disk, to_record
from headrace.core.schema import Column, TableSchema
from headrace.sources.contract.column_rules import ColumnRules
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import (
    ROOT,
    Branch,
    identity_differs,
    leaves,
    without_values,
)
from headrace.sources.postgres.types.columns import CHARACTER, TypeEntry, column_of, enum_of

ORDINARY, PARTITIONED = "r", "p"
PERMANENT = "p"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One column as the catalog has it."""

    number: int
    name: str
    type: int
    typmod: int
    not_null: bool
    generation: str = field(metadata=on_disk("generated"))  # '' no, 's' stored, 'v' virtual
    type_text: str = field(metadata=on_disk("shown"))  # as the server prints it
    # The transaction that wrote the column's row in the catalog.
    written_by: str = field(default="", metadata=on_disk("made", optional=True))
    # Older rows have a value for it all the same; None: an older record does not say.
    missing: bool | None = field(default=None, metadata=on_disk(optional=True))
    # That value, if it is short.
    value: str | None = field(default=None, metadata=on_disk(optional=True))
    # A rule lets its values leave as hashes alone; then `value` is unknown.
    is_hashed: bool = field(default=False, metadata=on_disk("hashed", sparse=True))


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """The columns by which the stream identifies old rows."""

    kind: str  # pg_class.relreplident: d default, n nothing, f full, i index
    index: int  # the index's oid, 0 for none
    key: tuple[str, ...]  # its columns, in order
    # The primary key's oid, which outlives a REINDEX; 0 for none.
    constraint: int = field(default=0, metadata=on_disk(optional=True))

    @property
    def full(self) -> bool:
        return self.kind == "f"


@dataclass(frozen=True, slots=True)
class Membership:
    """The way in which a publication holds the table: by name, by schema, by an ancestor, or with all tables.

    `life` distinguishes a membership from an equal one that was made later: changes between the two are not
    in the stream. It names the publication's row, with the transaction that wrote it, and the row that lists
    the table. No statement alters that row in place, so an equal life means the same filter and list. `lives`
    does the same for a table that is a member without a row of its own: by its place under an ancestor or in
    a schema. It is None in an older record.
    """

    publication: str
    has_filter: bool = field(metadata=on_disk("filtered"))
    columns: tuple[int, ...] | None
    life: str = field(metadata=on_disk("made"))
    # The publication names this very table; then the server refuses to make it unlogged.
    by_name: bool = field(default=False, metadata=on_disk("named", optional=True))
    # The member is an ancestor of the table.
    by_ancestor: bool = field(default=False, metadata=on_disk("inherited", optional=True))
    # The publication holds the member's schema.
    by_schema: bool = field(default=False, metadata=on_disk(optional=True))
    # Changes of partitions are sent under the name of an ancestor.
    via_root: bool = field(default=False, metadata=on_disk(optional=True))
    lives: str | None = field(default=None, metadata=on_disk(optional=True))
    # The columns that the row filter uses.
    filter_columns: tuple[int, ...] = field(default=(), metadata=on_disk(optional=True))
    # Stored generated columns are sent if there is no column list.
    sends_generated: bool = field(default=False, metadata=on_disk("generated", optional=True))

    @property
    def filters(self) -> bool:
        """Tell whether a filter leaves rows out; a publication that holds the schema has no effective one."""
        return self.has_filter and not self.by_schema


@dataclass(frozen=True, slots=True)
class TableEntry:
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
    types: tuple[TypeEntry, ...]  # the types of users that its columns reach
    # The oid of its TOAST table, 0 for none.
    toast: int = field(default=0, metadata=on_disk(optional=True))
    # The number of columns that it ever had; 0: an older record does not say.
    width: int = field(default=0, metadata=on_disk(optional=True))
    # Of a partitioned table: the tables beneath it.
    tree: tuple[Branch, ...] = field(default=(), metadata=on_disk(optional=True))
    # 32-bit ids of transactions that replaced a row which was read here: still open, or rolled back.
    replacing: frozenset[int] = field(default=frozenset(), compare=False, metadata=on_disk(outside=True))

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The mirrored columns: those that the publication sends, in the stream's order."""
        sent = sent_columns(self.memberships)
        return tuple(a for a in self.attributes if sent(a.number, a.generation))

    @property
    def filter(self) -> Membership | None:
        """The membership whose row filter the server uses; None if it sends all rows."""
        return next((m for m in deciding(self.memberships) if m.filters), None)

    @property
    def is_sent_above(self) -> bool:
        """Tell whether the publication sends its changes under the name of a table above it.

        A publication of all tables does so for every partition; any other must hold the table above, by name
        or by schema.
        """
        return bool(self.ancestors) and any(
            member.via_root and (member.by_ancestor or not (member.by_name or member.by_schema))
            for member in self.memberships
        )


def deciding(memberships: Sequence[Membership]) -> Sequence[Membership]:
    """The memberships that decide filter and list: the table's own come before its ancestors'."""
    return [membership for membership in memberships if not membership.by_ancestor] or memberships


def sent_columns(memberships: Sequence[Membership]) -> Callable[[int, str], bool]:
    """A test that tells from a column's number and generation whether the publication sends it.

    Without a column list it sends all columns, but of generated ones at most those that are stored
    (PostgreSQL 18).
    """
    members = deciding(memberships)
    lists = [membership.columns for membership in members if membership.columns is not None]
    if lists and len(lists) == len(members):
        listed = frozenset().union(*lists)
        return lambda number, generated: number in listed
    kinds = ("", "s") if any(membership.sends_generated for membership in members) else ("",)
    return lambda number, generated: generated in kinds


def apply_rules(entry: TableEntry, rules: ColumnRules) -> TableEntry:
    """The table with its columns that are hashed, and with no value that must not leave."""
    if entry.name not in rules.tables:
        return entry

    def hides(column: str) -> bool:
        return not rules.shows(entry.name, column)

    attributes = tuple(
        replace(each, is_hashed=rules.hashes(entry.name, each.name), value=None) if hides(each.name) else each
        for each in entry.attributes
    )
    return replace(entry, attributes=attributes, tree=tuple(without_values(b, hides) for b in entry.tree))


def columns_left_out(entry: TableEntry) -> tuple[str, ...]:
    """The generated columns that are not in the lake because the server does not send them."""
    sent = {column.number for column in entry.columns}
    return tuple(a.name for a in entry.attributes if a.generation and a.number not in sent)


def watched_columns(
    attributes: tuple[Attribute, ...], memberships: Sequence[Membership]
) -> tuple[Attribute, ...]:
    """The columns whose DDL matters: all, or those in the publication's column lists."""
    if all(membership.columns is None for membership in deciding(memberships)):
        return attributes
    sent = sent_columns(memberships)
    return tuple(a for a in attributes if sent(a.number, a.generation))


def schema_of(entry: TableEntry) -> TableSchema:
    """The lake's schema of the table: its columns and its identity."""
    types = {known.oid: known for known in entry.types}
    columns = tuple(_column(a, types) for a in entry.columns)
    # Use no key with a column that is not sent (a generated one, possible with identity FULL).
    key = entry.identity.key if set(entry.identity.key) <= {c.name for c in columns} else ()
    return TableSchema(columns=columns, key=key, full=entry.identity.full)


def _column(attribute: Attribute, types: Mapping[int, TypeEntry]) -> Column:
    column = column_of(attribute.name, attribute.type, attribute.typmod, attribute.type_text, types)
    if not attribute.is_hashed:
        return column
    return (replace(column, form="char") if attribute.type == CHARACTER else column).as_hashes


def as_shown(schema: TableSchema, entry: TableEntry) -> TableSchema:
    """A recorded schema with the types as the server prints them now: a varchar may have become longer.

    Nothing else changes: it was decided when the table was chosen.
    """
    shown = {attribute.name: attribute.type_text for attribute in entry.columns}
    columns = (replace(c, source_type=shown.get(c.name, c.source_type)) for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def identity_flaw(entry: TableEntry, server_version: int) -> str | None:
    """Say why UPDATE and DELETE could not be published, or not be read by us; None if they can.

    Never add a table with such a flaw to a publication that publishes updates: the server would then refuse
    the application's own statements.
    """
    identity = entry.identity
    sent = sent_columns(entry.memberships)
    generated = {a.name for a in entry.attributes if a.generation and not sent(a.number, a.generation)}
    if identity.full:
        if generated and server_version >= 180000:
            return "its replica identity FULL includes generated columns, which are not published"
        return leaf_flaw(entry)
    if identity.kind == "n":
        return "its replica identity is NOTHING"
    if not identity.key:
        return "it has neither a primary key nor a replica identity"
    if generated & set(identity.key):
        return "its replica identity includes a generated column, which is not published"
    return leaf_flaw(entry)


def full_identity(table: TableName) -> str:
    """The statement after which the stream brings whole old rows."""
    return f"ALTER TABLE {table} REPLICA IDENTITY FULL"


def not_whole_error(table: TableName) -> Misconfigured:
    """The error of a table whose old rows must come whole and do not."""
    return Misconfigured(
        "PG_IDENTITY_NOT_FULL",
        f"the stream does not bring whole old rows of table {table}",
        detail="its replica identity is not FULL",
        hint=full_identity(table),
    )


def leaf_flaw(entry: TableEntry) -> str | None:
    """Say which partition's old rows do not come as the root's layout announces; None if there is none."""
    found = (identity_differs(entry.identity.full, entry.identity.key, leaf) for leaf in leaves(entry.tree))
    return next((flaw for flaw in found if flaw is not None), None)


def definition(entry: TableEntry) -> TableDef:
    """The look as a `TableDef`: the record, and the lake's schema."""
    return TableDef(entry.name, entry.oid, schema_of(entry), to_record(entry))


def tree_of(record: Mapping[str, Any]) -> tuple[Branch, ...]:
    """Read from a look's record the tree beneath a partitioned table."""
    return tuple(from_record(Branch, branch) for branch in record.get("tree", ()))


def partitioned_below(record: Mapping[str, Any]) -> frozenset[int]:
    """The partitioned tables (by oid) in the tree beneath a root, out of a look's record."""
    return frozenset(branch["oid"] for branch in record.get("tree", ()) if branch["kind"] == ROOT)


def is_listed(record: Mapping[str, Any]) -> bool:
    """Tell from a look's record whether a publication had a column list for the table."""
    return any(member["columns"] is not None for member in record.get("memberships", ()))


def is_root(record: Mapping[str, Any]) -> bool:
    """Tell from a look's record whether the table is partitioned."""
    return bool(record.get("kind") == PARTITIONED)


def types_of(record: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Read from a look's record the type (oid and modifier) of each mirrored column."""
    return tuple((a["type"], a["typmod"]) for a in mirrored_columns(record))


def labels_of(record: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, ...]:
    """Read from a look's record the enum labels of each mirrored column; None for types other than enums."""
    types = {known["oid"]: from_record(TypeEntry, known) for known in record.get("types", ())}
    if not types:
        return ()
    enums = [enum_of(a["type"], types) for a in mirrored_columns(record)]
    return tuple(None if enum is None else enum.labels for enum in enums) if any(enums) else ()


def mirrored_columns(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sent = sent_columns([from_record(Membership, m) for m in record.get("memberships", ())])
    return [a for a in record.get("attributes", ()) if sent(a["number"], a["generated"])]
