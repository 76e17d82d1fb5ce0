"""Patterns of table names: how a person says which tables.

    public.*        every table of the schema        *.orders     of that name, in any schema
    public.ord?r_*  * any characters, ? exactly one  "Odd *".*    quoted parts mean themselves
    orders          the table of that name, where one schema has it

Every source reads `--tables` and `tables = [...]` through here. A pattern is a value; what it is
matched against (and what a match that cannot be mirrored means) is the source's own affair.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of `schema.table`; `schema` is None where the person left it out."""

    text: str
    schema: re.Pattern[str] | None
    table: re.Pattern[str]
    exact: bool  # no wildcard: what it names was meant

    @classmethod
    def parse(cls, text: str) -> Pattern:
        parts: list[re.Pattern[str]] = []
        exact, at = True, 0
        while True:
            match = _PART.match(text, at)
            if match is None:
                raise _malformed(text)
            quoted, bare = match.groups()
            parts.append(_literal(quoted) if quoted is not None else _wild(bare))
            exact = exact and (quoted is not None or not set(bare) & {"*", "?"})
            at = match.end()
            if at == len(text):
                break
            if text[at] != ".":
                raise _malformed(text)
            at += 1
        if len(parts) > 2:
            raise _malformed(text)
        return cls(text, parts[0] if len(parts) == 2 else None, parts[-1], exact)

    def matches(self, name: TableName) -> bool:
        in_schema = self.schema is None or self.schema.fullmatch(name.schema) is not None
        return in_schema and self.table.fullmatch(name.name) is not None

    def of(self, names: Iterable[TableName]) -> list[TableName]:
        """Those of the names that match, in order; a bare name in several schemas is refused."""
        found = sorted(name for name in names if self.matches(name))
        if self.schema is None and self.exact and len(found) > 1:
            raise Misconfigured(
                "TABLE_AMBIGUOUS",
                f'"{self.text}" names a table in several schemas',
                detail=", ".join(str(name) for name in found),
                hint="write schema.table",
            )
        return found


def _literal(quoted: str) -> re.Pattern[str]:
    return re.compile(re.escape(quoted.replace('""', '"')))


def _wild(bare: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in bare), re.DOTALL)


def _malformed(text: str) -> Misconfigured:
    return Misconfigured(
        "PATTERN_MALFORMED",
        f"{text!r} is not a pattern of tables",
        hint='write schema.table, with * and ? as wildcards and "double quotes" around parts that need them',
    )
