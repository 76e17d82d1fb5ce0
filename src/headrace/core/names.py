"""Names of tables: the pair (schema, name), and how it is printed and read.

A name is printed as PostgreSQL prints identifiers: bare where that is unambiguous, else in double
quotes with inner quotes doubled. Everything that shows a table to a person, or reads one from a
person, goes through here, so that one spelling works on the command line, in SQL, in the
configuration and in the lake's own records.

    public.orders      "Sales Data"."Order"      public."it""s"
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.core import records
from headrace.core.errors import Misconfigured

_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*\Z")
_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')

# Reserved in PostgreSQL: legal bare in none of the places where a table name stands.
_RESERVED = frozenset(
    """all analyse analyze and any array as asc asymmetric both case cast check collate column
    constraint create current_catalog current_date current_role current_time current_timestamp
    current_user default deferrable desc distinct do else end except false fetch for foreign from
    grant group having in initially intersect into lateral leading limit localtime localtimestamp
    not null offset on only or order placing primary references returning select session_user some
    symmetric system_user table then to trailing true union unique user using variadic when where
    window with""".split()
)


def quote_identifier(name: str) -> str:
    """The identifier as PostgreSQL's `quote_ident` prints it for names that need quotes."""
    if _PLAIN.match(name) and name not in _RESERVED:
        return name
    return '"' + name.replace('"', '""') + '"'


def split_identifiers(text: str) -> tuple[str, ...]:
    """Split `a."b.c".d` at its dots; quoted parts lose their quotes, bare parts keep their case."""
    parts: list[str] = []
    at = 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            raise Misconfigured(
                "NAME_MALFORMED",
                f"{text!r} is not a name",
                hint='write schema.table, with "double quotes" around parts that need them',
            )
        quoted, bare = match.groups()
        parts.append(quoted.replace('""', '"') if quoted is not None else bare)
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            raise Misconfigured(
                "NAME_MALFORMED",
                f"{text!r} is not a name",
                hint='write schema.table, with "double quotes" around parts that need them',
            )
        at += 1


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table of a source: its schema (MySQL: database) and its own name, both unquoted."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.name)}"

    @classmethod
    def parse(cls, text: str) -> TableName:
        """Read what `str()` prints."""
        parts = split_identifiers(text)
        if len(parts) != 2:
            raise Misconfigured(
                "NAME_MALFORMED",
                f"{text!r} does not name a table as schema.table",
                hint="write schema.table",
            )
        return cls(*parts)


records.register(TableName, str, TableName.parse)
