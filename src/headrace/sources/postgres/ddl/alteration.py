"""Alterations: the difference between two looks at a table, and whether it matters.

    differs(last, now)   ──►  None, or the change that gives the stream or the copy another meaning
    breaks_capture(last, now) ─► whether the stream may lack changes of the table, or parts of its old rows
    is_news(last, now)   ──►  nothing differs, but the next look must be compared with this one
    derive(last, now)    ──►  if only columns changed: the origin of each column in old rows
    parts_of(now, found) ──►  the same, with the values as the lake has them

`differs` compares everything in a look, except for what ordinary maintenance alters and no row depends on:

    index        REINDEX CONCURRENTLY makes another with the same columns. The key stays unique all the time,
                 or the stream shows that it did not: without the index its layouts name no key. With identity
                 FULL layouts always name all columns. There the constraint, which outlives a REINDEX, must be
                 the same one
    NOT NULL     counts only in a key, where the server does not drop it either
    modifier     a longer varchar, none, or text: the same bytes as before (`types.is_same_form`)
    labels       an enum may get more. The life of a label's row shows a rename and a rename back. If a label
                 was added and renamed since the last look, the stream shows its first name
                 (`decode.changes`). Within a composite or a range nothing would show that
    names        of types are for people
    columns      that the publication's list leaves out may come, go and change: that alters no row

A new file node alone means nothing: TRUNCATE is in the stream, and VACUUM FULL and CLUSTER move rows without
changing them. Two statements change rows without a message in the stream. Both leave more than a new file
node. If the table has a TOAST table, only that is compared, since many statements write a column's row:

    ALTER COLUMN ... TYPE ... USING     writes the column's row in the catalog, makes a new TOAST table
    SET UNLOGGED, writes, SET LOGGED    makes a new TOAST table; without one there is no trace, but the
                                        server forbids it for a table that a publication names

A partition may be detached, changed and attached again in its old place. If its place makes it a member of
the publication, the rows of the path have other lives (`Membership.lives`). A publication that sends
partitions under the name of their root loses what was written to a detached one. The only trace of that is
that ATTACH and DETACH write the catalog's row of each column of the partition. For the root itself the whole
tree beneath is compared (`partition_tree`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.core.conversion import Part, Take, Value
from headrace.core.schema import Column
from headrace.decode.text import TextColumn
from headrace.decode.values.forms import decode_column
from headrace.sources.postgres.catalog.partition_tree import tree_differs, value_before
from headrace.sources.postgres.catalog.table_def import (
    PARTITIONED,
    Attribute,
    Membership,
    TableEntry,
    leaf_flaw,
    schema_of,
    watched_columns,
)
from headrace.sources.postgres.types.columns import TypeEntry, enum_of, is_same_form, is_wider


def differs(last: TableEntry, now: TableEntry, *, by_triggers: bool = False) -> str | None:
    """Say what changed between two looks at a table, for a message; None if nothing changed that matters.

    Row-level security does not matter: a copy from which it would hide rows is denied. A virtual column is in
    no file and in no message of the stream; only a row that triggers see (`by_triggers`) has a place for it.
    """
    checks: tuple[tuple[bool, str], ...] = (
        ((last.oid, last.kind) != (now.oid, now.kind), "the table was dropped and made again"),
        (last.name != now.name, f"the table was renamed to {now.name}"),
        (_memberships_differ(last, now), _memberships_changed(last, now)),
        ((columns := _columns_differ(last, now, by_triggers)) is not None, str(columns)),
        (_types_differ(last, now), "a type of its columns was altered"),
        (_identity_differs(last, now), "its replica identity changed"),
        (last.ancestors != now.ancestors or _was_moved(last, now), "its place in a partition tree changed"),
        ((beneath := tree_differs(last.tree, now.tree)) is not None, str(beneath)),
        ((flaw := leaf_flaw(now)) is not None, str(flaw)),
        (last.persistence != now.persistence, "it was made logged or unlogged"),
        (_rewritten(last, now), "it was rewritten"),
    )
    return next((what for changed, what in checks if changed), None)


def breaks_capture(last: TableEntry, now: TableEntry) -> bool:
    """Tell whether the stream may lack changes of a table between two looks, or parts of its old rows."""
    return (
        (last.oid, last.kind, last.persistence) != (now.oid, now.kind, now.persistence)
        or _memberships_differ(last, now)
        or last.ancestors != now.ancestors
        or _was_moved(last, now)
        or tree_differs(last.tree, now.tree) is not None
        or leaf_flaw(now) is not None
    )


def is_news(last: TableEntry, now: TableEntry) -> bool:
    """Tell whether a look that does not differ has something new that the next look is compared with."""
    return last != now


@dataclass(frozen=True, slots=True)
class Missing:
    """The value of an added column in older rows, as the server prints it; None is NULL."""

    text: str | None


def derive(last: TableEntry, now: TableEntry, *, by_names: bool = True) -> tuple[int | Missing, ...] | None:
    """Find the origin of each mirrored column in older rows; None if it is not proven.

    A column's number identifies it, whatever its name is. The value of an added column in old rows stands in
    the catalog until the table is rewritten; a default that differs from row to row rewrites it at once. So
    the file node must be the same, and nothing else may differ once the columns have their old names.

    Between the looks there may have been rows under layouts that neither look shows. If columns were only
    added, or only dropped, a layout's length tells which columns it has, however they were renamed. If some
    came and others went, a layout may have the names of a known one and mean other columns. A layout of a
    table that is sent in part does not show all columns, so nothing is proven of it. A source that knows the
    columns of each row otherwise than by names (without `by_names`) takes care of that itself.

    Nothing is proven of a column whose type was added with it, if the first rows may have printed that type
    in another way: a label of an enum was renamed since, or a composite got an attribute.
    """
    before = {attribute.number: attribute for attribute in last.attributes}
    added = [attribute for attribute in now.attributes if attribute.number not in before]
    gone = before.keys() - {attribute.number for attribute in now.attributes}
    if last.filenode != now.filenode or not last.width or _is_part(now):
        return None
    if by_names and (now.width - last.width != len(added) or (added and gone)):
        return None
    if now.kind == PARTITIONED:
        now = replace(now, attributes=tuple(_in_leaves(last, now, a) for a in now.attributes))
        added = [attribute for attribute in now.attributes if attribute.number not in before]
    if any(a.generation or a.missing is None or (a.missing and a.value is None) for a in added):
        return None
    if not _print_as_ever(last, now):
        return None
    if differs(_called_now(last, now), _known_before(last, now), by_triggers=not by_names) is not None:
        return None
    places = {attribute.number: place for place, attribute in enumerate(last.columns)}
    return tuple(
        places[a.number] if a.number in places else Missing(a.value if a.missing else None)
        for a in now.columns
    )


def _print_as_ever(last: TableEntry, now: TableEntry) -> bool:
    """Tell whether the types that came with added columns print as they did when the columns came.

    No earlier look has these types, so the only proof is that they are still as they were made.
    """
    known = {entry.oid for entry in last.types}
    return all(entry.as_made for entry in now.types if entry.oid not in known)


def parts_of(now: TableEntry, origins: Sequence[int | Missing] | None) -> tuple[Part, ...] | None:
    """The parts of a conversion to these columns; None without a proof, or if a value has no lake form."""
    if origins is None:
        return None
    parts: list[Part] = []
    for column, each in zip(schema_of(now).columns, origins, strict=True):
        if not isinstance(each, Missing):
            parts.append(Take(each))
        elif (value := missing_value(column, each.text)) is not None:
            parts.append(Value.of(value[0]))
        else:
            return None
    return tuple(parts)


def missing_value(column: Column, text: str | None) -> pa.Array | None:
    """The value of an added column in all older rows; None if it has no lake form."""
    decoded = decode_column(
        TextColumn.of([None if text is None else text.encode()]), column.form, column.type
    )
    return None if len(decoded.bad) else decoded.array


def _in_leaves(last: TableEntry, now: TableEntry, attribute: Attribute) -> Attribute:
    """A column of a root, with the value that its partitions have in older rows."""
    found = value_before(last.tree, now.tree, attribute.name)
    missing, value = (None, None) if found is None else found
    return replace(attribute, missing=missing, value=value)


def _is_part(entry: TableEntry) -> bool:
    return any(member.has_filter or member.columns is not None for member in entry.memberships)


def _called_now(last: TableEntry, now: TableEntry) -> TableEntry:
    """The last look, without dropped columns, under today's names."""
    later = {attribute.number: attribute for attribute in now.attributes}
    left = tuple(_as_called(a, later[a.number]) for a in last.attributes if a.number in later)
    names = {a.name: later[a.number].name for a in last.attributes if a.number in later}
    key = tuple(names.get(name, name) for name in last.identity.key)
    types = {entry.oid for entry in now.types}
    return replace(
        last,
        attributes=left,
        identity=replace(last.identity, key=key),
        types=tuple(entry for entry in last.types if entry.oid in types),
    )


def _as_called(before: Attribute, after: Attribute) -> Attribute:
    given, wider = (before.type, before.typmod), (after.type, after.typmod)
    same = replace(before, name=after.name)
    return replace(same, type=after.type, typmod=after.typmod) if is_wider(given, wider) else same


def _known_before(last: TableEntry, now: TableEntry) -> TableEntry:
    """This look without the columns that were added."""
    numbers = {attribute.number for attribute in last.attributes}
    types = {entry.oid for entry in last.types}
    return replace(
        now,
        attributes=tuple(attribute for attribute in now.attributes if attribute.number in numbers),
        types=tuple(entry for entry in now.types if entry.oid in types),
    )


def _columns_differ(last: TableEntry, now: TableEntry, by_triggers: bool) -> str | None:
    before, after = (
        {
            a.number: a
            for a in watched_columns(each.attributes, each.memberships)
            if by_triggers or a.generation != "v"
        }
        for each in (last, now)
    )
    for number, attribute in before.items():
        later = after.get(number)
        if later is None:
            return f'column "{attribute.name}" was dropped'
        if later.name != attribute.name:
            return f'column "{attribute.name}" was renamed to "{later.name}"'
        if not is_same_form((attribute.type, attribute.typmod), (later.type, later.typmod)):
            return (
                f'the type of column "{later.name}" changed from {attribute.type_text} to {later.type_text}'
            )
        in_key = later.name in last.identity.key
        if later.generation != attribute.generation or (in_key and later.not_null != attribute.not_null):
            return f'column "{later.name}" was altered'
    added = ", ".join(f'"{a.name}"' for number, a in after.items() if number not in before)
    return f"column {added} was added" if added else None


def _types_differ(last: TableEntry, now: TableEntry) -> bool:
    before = {known.oid: known for known in last.types}
    after = {known.oid: known for known in now.types}
    visible = {enum.oid for a in now.attributes if (enum := enum_of(a.type, after)) is not None}
    return before.keys() != after.keys() or any(
        _is_altered(before[oid], after[oid], visible=oid in visible) for oid in before
    )


def _is_altered(before: TypeEntry, after: TypeEntry, *, visible: bool) -> bool:
    if not visible and before.labels != after.labels:
        return True
    if _without_lives(before) != _without_lives(after):
        return True
    if before.width not in (None, after.width):
        return True  # an attribute came and went, and rows may have been printed with it
    if before.label_lives is None or after.label_lives is None:
        return not set(before.labels) <= set(after.labels)
    labels = set(zip(before.labels, before.label_lives, strict=True))
    return not labels <= set(zip(after.labels, after.label_lives, strict=True))


def _without_lives(known: TypeEntry) -> TypeEntry:
    return replace(known, labels=(), label_lives=None, width=None)


def _identity_differs(last: TableEntry, now: TableEntry) -> bool:
    before, after = last.identity, now.identity
    if (before.kind, before.key) != (after.kind, after.key):
        return True
    if not (before.full and before.key):
        return False
    return before.constraint != after.constraint if before.constraint else before.index != after.index


def _memberships_differ(last: TableEntry, now: TableEntry) -> bool:
    if len(last.memberships) != len(now.memberships):
        return True
    # A table that is a member by itself stays one, whatever becomes of its ancestors.
    by_itself = any(not membership.by_ancestor for membership in now.memberships)
    return any(
        not _is_same_membership(before, after)
        or not (_is_unbroken(before, after) or (by_itself and after.by_ancestor))
        for before, after in zip(last.memberships, now.memberships, strict=True)
    )


def _is_same_membership(before: Membership, after: Membership) -> bool:
    return (before.publication, before.columns, before.life, before.by_name) == (
        after.publication,
        after.columns,
        after.life,
        after.by_name,
    )


def _is_unbroken(before: Membership, after: Membership) -> bool:
    return before.lives in (None, after.lives)


def _memberships_changed(last: TableEntry, now: TableEntry) -> str:
    if len(last.memberships) > len(now.memberships):
        return "it was taken out of the publication"
    return "its publication, row filter or column list changed, or what makes it a member of it"


def _was_moved(last: TableEntry, now: TableEntry) -> bool:
    """Tell whether it may have been attached or detached for a while, though no row of the path shows it."""
    unknown = any(membership.lives is None for membership in last.memberships)
    if not any(m.via_root or (m.by_ancestor and unknown) for m in now.memberships):
        return False
    written = {a.number: a.written_by for a in now.attributes}
    made = [(a.written_by, written.get(a.number)) for a in last.attributes]
    return bool(made) and all(before and before != after for before, after in made)


def _rewritten(last: TableEntry, now: TableEntry) -> bool:
    """Tell whether rows may hold other values: a new file node not by TRUNCATE or VACUUM FULL alone."""
    if last.filenode == now.filenode:
        return False
    if last.toast and now.toast:
        return last.toast != now.toast
    named = any(membership.by_name for membership in now.memberships)
    return _column_origin(last) != _column_origin(now) or not (now.toast or named)


def _column_origin(entry: TableEntry) -> tuple[int, list[str]]:
    return entry.toast, [attribute.written_by for attribute in entry.attributes]
