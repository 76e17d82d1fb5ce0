"""Changes of shape that cost more of a table than of others: for `headrace check` to say beforehand.

`docs/change-shape.md` says what holds for every table: a column of another type, another key. This module
finds what depends on the table: its key, its partitions, the types of users that its columns have, and what
the publication sends of it. The verdicts are those of `catalog.alteration`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headrace.sources.postgres.catalog.table_def import PARTITIONED, TableEntry, schema_of, watched_columns
from headrace.sources.postgres.types.columns import TypeEntry, enum_of

_TREE = "copied anew where a partition is dropped, detached, truncated, rewritten, or attached with rows"
_PART = "copied anew by every change of its columns, of its row filter or of its column list"
_NO_KEY = "written again in the lake by every added column: it has no key"


def costly_ddl(entry: TableEntry) -> tuple[str, ...]:
    """Say what is special of this table, the dearest first."""
    return tuple(_costs(entry))


def _costs(entry: TableEntry) -> Iterator[str]:
    if any(member.filtered or member.columns is not None for member in entry.memberships):
        yield _PART
    if entry.kind == PARTITIONED:
        yield _TREE
    if types := _types(entry):
        yield f"copied anew where a type of its columns is altered ({types})"
    if computed := ", ".join(f'"{a.name}"' for a in entry.attributes if a.generated == "s"):
        yield f"copied anew by another expression of its generated columns ({computed})"
    if schema_of(entry).is_multiset:
        yield _NO_KEY


def _types(entry: TableEntry) -> str:
    """The types of its columns that an ALTER TYPE changes; labels may be added to an enum that is one."""
    known = {each.oid: each for each in entry.types}
    found: dict[str, str] = {}
    for attribute in watched_columns(entry.attributes, entry.memberships):
        name = attribute.shown.removesuffix("[]")
        if enum_of(attribute.type, known) is not None:
            found[name] = ": a label renamed"
        elif any(known[oid].kind in "ce" for oid in _within(attribute.type, known)):
            found[name] = ""
    return ", ".join(f"{name}{how}" for name, how in sorted(found.items()))


def _within(type: int, known: Mapping[int, TypeEntry]) -> Iterator[int]:
    """A type of users, and those that its values are made of."""
    entry = known.get(type)
    if entry is None:
        return
    yield type
    for part in (entry.base, entry.element, entry.subtype, *(of for _, _, of, _ in entry.attributes)):
        yield from _within(part, known)
