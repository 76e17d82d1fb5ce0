"""The definition of a table: what it is, in a form that can be compared.

The stream alone cannot be trusted to tell of DDL: a rewriting ALTER TABLE, an enum label renamed, a
publication that loses the table send nothing when no row changes after them. So before each mark the
pipeline looks again (`definitions`), and a table that differs from its last look leaves the marks
(`alteration`).

A look holds all that can change what the stream or a copy of the table means, and nothing that
changes by itself (statistics, sizes): two looks at an untouched table are equal.

lives       What may go from A to B and back to A between two looks is told by the transaction that wrote
            its row (xmin), as narrowly as the catalog allows: of pg_class it would be another after each
            GRANT and TRUNCATE. VACUUM, ANALYZE and VACUUM FULL of the catalog leave it alone; a server
            that was upgraded or restored from a dump is another server, and nothing is compared with it.
hidden      DDL that may be in the stream while a look still shows the rows that it replaced is told by
            their xmax (`replacing`, asked about by `ddl.schema_check`).

A look at a table as a record of the lake's catalog, and back.

What the last look showed has to outlive the process: DDL that happened while nobody ran is found by
comparing the first look of the new run with the recorded one.

A record of an older release lacks what was not asked for then. It is read
as a look whose unknown parts are None (`alteration` says what is compared instead), and is
replaced at the first look that shows more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.names import TableName
from headrace.core.records import from_record, on_disk, to_record
from headrace.core.schema import TableSchema
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import Branch, identity_differs, leaves
from headrace.sources.postgres.types.columns import TypeEntry, column_of, enum_of

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
    type_text: str = field(metadata=on_disk("shown"))  # as the server writes it
    # The transaction that wrote the column's row in the catalog.
    written_by: str = field(default="", metadata=on_disk("made", optional=True))
    # Rows from before it have a value all the same; None: not asked for then.
    missing: bool | None = field(default=None, metadata=on_disk(optional=True))
    # That value, if it is short.
    value: str | None = field(default=None, metadata=on_disk(optional=True))


@dataclass(frozen=True, slots=True)
class ReplicaIdentity:
    """By which columns the stream tells old rows apart."""

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

    `life` tells a membership from one that looks the same and was made later: what was written between
    the two is not in the stream. It names the publication's row, with the transaction that wrote it, and
    the row that lists the table: no statement alters that one in place, so filter and list are as they were.
    `lives` does so for what makes the table a member without a row of its own: its place under an
    ancestor, its place in a schema. None is a record of before this was asked for.
    """

    publication: str
    has_filter: bool = field(metadata=on_disk("filtered"))
    columns: tuple[int, ...] | None
    life: str = field(metadata=on_disk("made"))
    # The publication names this very table: the server keeps it logged.
    by_name: bool = field(default=False, metadata=on_disk("named", optional=True))
    # It is an ancestor that is the member.
    by_ancestor: bool = field(default=False, metadata=on_disk("inherited", optional=True))
    # The publication holds the member's schema.
    by_schema: bool = field(default=False, metadata=on_disk(optional=True))
    # Changes of partitions are sent under the name of an ancestor.
    via_root: bool = field(default=False, metadata=on_disk(optional=True))
    lives: str | None = field(default=None, metadata=on_disk(optional=True))
    # Of the row filter; it never asks for the whole row.
    filter_columns: tuple[int, ...] = field(default=(), metadata=on_disk(optional=True))
    # Stored generated columns are sent where no list says which.
    sends_generated: bool = field(default=False, metadata=on_disk("generated", optional=True))

    @property
    def filters(self) -> bool:
        """Tell whether rows are left out: the server goes by no filter of a table whose schema it holds."""
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
    # Columns that it ever had; 0: not asked for then.
    width: int = field(default=0, metadata=on_disk(optional=True))
    # Of a partitioned table: the tables beneath it.
    tree: tuple[Branch, ...] = field(default=(), metadata=on_disk(optional=True))
    # Transactions (their 32 bits) that replaced a row which this was read from: not over yet, or rolled back.
    replacing: frozenset[int] = field(default=frozenset(), compare=False, metadata=on_disk(outside=True))

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns that are mirrored: those that the publication sends, in the stream's order."""
        sent = sent_columns(self.memberships)
        return tuple(a for a in self.attributes if sent(a.number, a.generation))

    @property
    def filter(self) -> Membership | None:
        """The membership whose row filter the server goes by; None where all rows are sent."""
        return next((m for m in deciding(self.memberships) if m.filters), None)

    @property
    def is_sent_above(self) -> bool:
        """Tell whether the publication sends its changes under the name of a table above it.

        One that holds all tables does so of every partition; else it has to name the one above, or its
        schema.
        """
        return bool(self.ancestors) and any(
            member.via_root and (member.by_ancestor or not (member.by_name or member.by_schema))
            for member in self.memberships
        )


def deciding(memberships: Sequence[Membership]) -> Sequence[Membership]:
    """The memberships that filter and list are taken from: the table's own row goes before its ancestors'."""
    return [membership for membership in memberships if not membership.by_ancestor] or memberships


def sent_columns(memberships: Sequence[Membership]) -> Callable[[int, str], bool]:
    """The test of a column, by its number and how it is generated: does the publication send it?

    Without a list it sends all, but of generated columns at most the stored ones (PostgreSQL 18).
    """
    members = deciding(memberships)
    lists = [membership.columns for membership in members if membership.columns is not None]
    if lists and len(lists) == len(members):
        listed = frozenset().union(*lists)
        return lambda number, generated: number in listed
    kinds = ("", "s") if any(membership.sends_generated for membership in members) else ("",)
    return lambda number, generated: generated in kinds


def columns_left_out(entry: TableEntry) -> tuple[str, ...]:
    """The generated columns that are not in the lake, since the server does not send them."""
    sent = {column.number for column in entry.columns}
    return tuple(a.name for a in entry.attributes if a.generation and a.number not in sent)


def watched_columns(
    attributes: tuple[Attribute, ...], memberships: Sequence[Membership]
) -> tuple[Attribute, ...]:
    """The columns whose DDL matters: all of them, or those that the publication lists."""
    if all(membership.columns is None for membership in deciding(memberships)):
        return attributes
    sent = sent_columns(memberships)
    return tuple(a for a in attributes if sent(a.number, a.generation))


def schema_of(entry: TableEntry) -> TableSchema:
    """The table's columns and identity, as the lake will know them."""
    types = {known.oid: known for known in entry.types}
    columns = tuple(column_of(a.name, a.type, a.typmod, a.type_text, types) for a in entry.columns)
    # A key with a column that is not sent (a generated one, possible with identity FULL) is not ours to use.
    key = entry.identity.key if set(entry.identity.key) <= {c.name for c in columns} else ()
    return TableSchema(columns=columns, key=key, full=entry.identity.full)


def as_shown(schema: TableSchema, entry: TableEntry) -> TableSchema:
    """A recorded schema with the types as the server writes them now: a varchar may have become longer.

    All else stays as it was decided when the table was chosen.
    """
    shown = {attribute.name: attribute.type_text for attribute in entry.columns}
    columns = (replace(c, source_type=shown.get(c.name, c.source_type)) for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def identity_flaw(entry: TableEntry, server_version: int) -> str | None:
    """Say why UPDATE and DELETE could not be published, or not read by us; None where they can.

    A table with such a flaw must not get into a publication that publishes updates: from then on the
    server would refuse the application's own statements.
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


def leaf_flaw(entry: TableEntry) -> str | None:
    """The first partition of a root whose old rows do not come as the root's layout announces them."""
    found = (identity_differs(entry.identity.full, entry.identity.key, leaf) for leaf in leaves(entry.tree))
    return next((flaw for flaw in found if flaw is not None), None)


def definition(entry: TableEntry) -> TableDef:
    """The look as those above record it, with the columns that the lake will have."""
    return TableDef(entry.name, entry.oid, schema_of(entry), to_record(entry))


def tree_of(record: Mapping[str, Any]) -> tuple[Branch, ...]:
    """The tree beneath a partitioned table, out of a look's record."""
    return tuple(from_record(Branch, branch) for branch in record.get("tree", ()))


def is_listed(record: Mapping[str, Any]) -> bool:
    """Tell whether a publication sent a list of the table's columns, by a look's record."""
    return any(member["columns"] is not None for member in record.get("memberships", ()))


def is_root(record: Mapping[str, Any]) -> bool:
    """Tell whether a look's record is of a partitioned table."""
    return bool(record.get("kind") == PARTITIONED)


def types_of(record: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """The types of the columns that are mirrored (oid and modifier), out of a look's record; () of none."""
    return tuple((a["type"], a["typmod"]) for a in mirrored_columns(record))


def labels_of(record: Mapping[str, Any]) -> tuple[tuple[str, ...] | None, ...]:
    """Read for each mirrored column the labels that its values may have; None for other types than enums."""
    types = {known["oid"]: from_record(TypeEntry, known) for known in record.get("types", ())}
    if not types:
        return ()
    enums = [enum_of(a["type"], types) for a in mirrored_columns(record)]
    return tuple(None if enum is None else enum.labels for enum in enums) if any(enums) else ()


def mirrored_columns(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sent = sent_columns([from_record(Membership, m) for m in record.get("memberships", ())])
    return [a for a in record.get("attributes", ()) if sent(a["number"], a["generated"])]
