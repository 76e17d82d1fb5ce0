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

A record of an older release lacks what was not asked for then, and holds what no longer is. It is read
as a look whose unknown parts are None (`alteration` says what is compared instead), and is
replaced at the first look that shows more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from headrace.core.names import TableName
from headrace.core.schema import TableSchema
from headrace.sources.contract.values import TableDef
from headrace.sources.postgres.catalog.partition_tree import Branch, identity_differs, leaves
from headrace.sources.postgres.types.columns import TypeEntry, column_of, enum_of

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
    missing: bool | None = None  # rows from before it have a value all the same; None: not asked for then
    value: str | None = None  # that value, if it is short


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
    """The way in which a publication holds the table: by name, by schema, by an ancestor, or with all tables.

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
    filter_columns: tuple[int, ...] = ()  # of the row filter; it never asks for the whole row
    generated: bool = False  # stored generated columns are sent where no list says which

    @property
    def filters(self) -> bool:
        """Tell whether rows are left out: the server goes by no filter of a table whose schema it holds."""
        return self.filtered and not self.by_schema


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
    toast: int = 0  # the oid of its TOAST table, 0 for none
    width: int = 0  # columns that it ever had; 0: not asked for then
    tree: tuple[Branch, ...] = ()  # of a partitioned table: what is beneath it
    # Transactions (their 32 bits) that replaced a row which this was read from: not over yet, or rolled back.
    replacing: frozenset[int] = field(default=frozenset(), compare=False)

    @property
    def columns(self) -> tuple[Attribute, ...]:
        """The columns that are mirrored: those that the publication sends, in the stream's order."""
        sent = sent_columns(self.memberships)
        return tuple(a for a in self.attributes if sent(a.number, a.generated))

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
            member.via_root and (member.inherited or not (member.named or member.by_schema))
            for member in self.memberships
        )


def deciding(memberships: Sequence[Membership]) -> Sequence[Membership]:
    """The memberships that filter and list are taken from: the table's own row goes before its ancestors'."""
    return [membership for membership in memberships if not membership.inherited] or memberships


def sent_columns(memberships: Sequence[Membership]) -> Callable[[int, str], bool]:
    """The test of a column, by its number and how it is generated: does the publication send it?

    Without a list it sends all, but of generated columns at most the stored ones (PostgreSQL 18).
    """
    members = deciding(memberships)
    lists = [membership.columns for membership in members if membership.columns is not None]
    if lists and len(lists) == len(members):
        listed = frozenset().union(*lists)
        return lambda number, generated: number in listed
    kinds = ("", "s") if any(membership.generated for membership in members) else ("",)
    return lambda number, generated: generated in kinds


def columns_left_out(entry: TableEntry) -> tuple[str, ...]:
    """The generated columns that are not in the lake, since the server does not send them."""
    sent = {column.number for column in entry.columns}
    return tuple(a.name for a in entry.attributes if a.generated and a.number not in sent)


def watched_columns(
    attributes: tuple[Attribute, ...], memberships: Sequence[Membership]
) -> tuple[Attribute, ...]:
    """The columns whose DDL matters: all of them, or those that the publication lists."""
    if all(membership.columns is None for membership in deciding(memberships)):
        return attributes
    sent = sent_columns(memberships)
    return tuple(a for a in attributes if sent(a.number, a.generated))


def schema_of(entry: TableEntry) -> TableSchema:
    """The table's columns and identity, as the lake will know them."""
    types = {known.oid: known for known in entry.types}
    columns = tuple(column_of(a.name, a.type, a.typmod, a.shown, types) for a in entry.columns)
    # A key with a column that is not sent (a generated one, possible with identity FULL) is not ours to use.
    key = entry.identity.key if set(entry.identity.key) <= {c.name for c in columns} else ()
    return TableSchema(columns=columns, key=key, full=entry.identity.full)


def as_shown(schema: TableSchema, entry: TableEntry) -> TableSchema:
    """A recorded schema with the types as the server writes them now: a varchar may have become longer.

    All else stays as it was decided when the table was chosen.
    """
    shown = {attribute.name: attribute.shown for attribute in entry.columns}
    columns = (replace(c, source_type=shown.get(c.name, c.source_type)) for c in schema.columns)
    return replace(schema, columns=tuple(columns))


def identity_flaw(entry: TableEntry, server_version: int) -> str | None:
    """Say why UPDATE and DELETE could not be published, or not read by us; None where they can.

    A table with such a flaw must not get into a publication that publishes updates: from then on the
    server would refuse the application's own statements.
    """
    identity = entry.identity
    sent = sent_columns(entry.memberships)
    generated = {a.name for a in entry.attributes if a.generated and not sent(a.number, a.generated)}
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


def to_record(entry: TableEntry) -> dict[str, Any]:
    """The look as JSON can hold it."""
    record = asdict(entry)
    record["name"] = str(entry.name)
    # Of the moment of the look, and no part of what the table is.
    for of_the_moment in (record, *record["types"]):
        del of_the_moment["replacing"]
    for known in record["types"]:
        del known["as_made"]
    for branch in record["tree"]:
        del branch["empty"]
    return record


def definition(entry: TableEntry) -> TableDef:
    """The look as those above record it, with the columns that the lake will have."""
    return TableDef(entry.name, entry.oid, schema_of(entry), to_record(entry))


def from_record(record: Mapping[str, Any]) -> TableEntry:
    """The inverse of `to_record`, lists being tuples again."""
    return TableEntry(
        **{
            **_fields({key: value for key, value in record.items() if key != "bound"}),
            "name": TableName.parse(record["name"]),
            "identity": ReplicaIdentity(**_fields(record["identity"])),
            "attributes": tuple(Attribute(**a) for a in record["attributes"]),
            "memberships": tuple(_membership(m) for m in record["memberships"]),
            "types": tuple(TypeEntry(**_fields(t)) for t in record["types"]),
            "tree": tree_of(record),
        }
    )


def tree_of(record: Mapping[str, Any]) -> tuple[Branch, ...]:
    """The tree beneath a partitioned table, out of a look's record."""
    return tuple(Branch(**_fields(branch)) for branch in record.get("tree", ()))


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
    types = {known["oid"]: TypeEntry(**_fields(known)) for known in record.get("types", ())}
    if not types:
        return ()
    enums = [enum_of(a["type"], types) for a in mirrored_columns(record)]
    return tuple(None if enum is None else enum.labels for enum in enums) if any(enums) else ()


def mirrored_columns(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    sent = sent_columns([_membership(m) for m in record.get("memberships", ())])
    return [a for a in record.get("attributes", ()) if sent(a["number"], a["generated"])]


def _membership(record: Mapping[str, Any]) -> Membership:
    known = _fields(record)
    if "row_filter" in known:
        known["filtered"] = known.pop("row_filter") is not None
    return Membership(**known)


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _tuples(value) for key, value in record.items()}


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list | tuple) else value
