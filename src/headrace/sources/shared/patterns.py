"""Patterns of table names: how a person says which tables.

    public.*        every table of the schema        *.orders     of that name, in any schema
    public.ord?r_*  * any characters, ? exactly one  "Odd *".*    quoted parts mean themselves
    orders          the table of that name, where one schema has it
    !public.log     not these, whatever else in the list matches them

A pattern without wildcards *means* its table: if the table can't be mirrored, that is an error. A table that
only a wildcard matches is left out if it can't be mirrored, and the report says so.

Every source reads `--tables` and `tables = [...]` through `select`. The source decides which names a pattern
is matched with, and what it means that a match can't be mirrored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName
from headrace.core.near import did_you_mean

_PART = re.compile(r'"((?:[^"]|"")+)"|([^".]+)')


@dataclass(frozen=True, slots=True)
class Pattern:
    """A pattern of `schema.table`; `schema` is None where the person left it out."""

    text: str
    schema: re.Pattern[str] | None
    table: re.Pattern[str]
    exact: bool  # no wildcard: what it names was meant
    excludes: bool = False  # what it matches is left out

    @classmethod
    def parse(cls, text: str) -> Pattern:
        parts: list[re.Pattern[str]] = []
        excludes = text.startswith("!")
        exact, at = True, int(excludes)
        while True:
            match = _PART.match(text, at)
            if match is None:
                raise _malformed_error(text)
            quoted, bare = match.groups()
            parts.append(_literal(quoted) if quoted is not None else _wild(bare))
            exact = exact and (quoted is not None or not set(bare) & {"*", "?"})
            at = match.end()
            if at == len(text):
                break
            if text[at] != ".":
                raise _malformed_error(text)
            at += 1
        if len(parts) > 2:
            raise _malformed_error(text)
        return cls(text, parts[0] if len(parts) == 2 else None, parts[-1], exact, excludes)

    def matches(self, name: TableName) -> bool:
        in_schema = self.schema is None or self.schema.fullmatch(name.schema) is not None
        return in_schema and self.table.fullmatch(name.name) is not None

    def near(self, names: Iterable[TableName]) -> str | None:
        """Ask whether the person meant names, or a schema, that are nearly spelt as this pattern is."""
        text = self.text.removeprefix("!")
        _, dot, table = text.rpartition(".")
        if self.exact or not dot or not set(table) & {"*", "?"}:
            return did_you_mean(text, map(str, names))
        return did_you_mean(text, {f"{name.schema}.{table}" for name in names})

    def of(self, names: Iterable[TableName]) -> list[TableName]:
        """Match a bare name against names, in order; one that is in several schemas is refused."""
        found = sorted(name for name in names if self.matches(name))
        if self.schema is None and self.exact and len(found) > 1:
            raise Misconfigured(
                "TABLE_AMBIGUOUS",
                f'"{self.text}" names a table in several schemas',
                detail=", ".join(str(name) for name in found),
                hint="write schema.table",
            )
        return found


@dataclass(frozen=True, slots=True)
class Selection:
    """The result of matching a list of patterns with names."""

    names: tuple[TableName, ...]  # in order
    named_tables: frozenset[TableName]  # of these, what a pattern without wildcards names
    empty: tuple[Pattern, ...]  # the patterns that match none of the names
    errors: tuple[Misconfigured, ...]  # of patterns that cannot be read, or not be told apart

    def check(self) -> Selection:
        """Raise the first error, if there is one; else return this selection."""
        for error in self.errors:
            raise error
        return self


def select(texts: Sequence[str], among: Iterable[TableName], *, case_insensitive: bool = False) -> Selection:
    """Match names with a list of patterns. A pattern with `!` leaves its matches out, wherever it stands.

    `case_insensitive` is for a source in which names mean the same in any case.
    """
    if case_insensitive:
        return _select_folding_case(texts, among)
    patterns, errors = _parse(texts)
    names = list(among)
    without = [pattern for pattern in patterns if pattern.excludes]
    empty = [pattern for pattern in without if not any(map(pattern.matches, names))]
    left = [name for name in names if not any(pattern.matches(name) for pattern in without)]
    found: dict[TableName, bool] = {}
    for pattern in patterns:
        if pattern.excludes:
            continue
        try:
            matched = pattern.of(left)
        except Misconfigured as error:
            errors.append(error)
            continue
        if not matched:
            empty.append(pattern)
        for name in matched:
            found[name] = found.get(name, False) or pattern.exact
    meant = frozenset(name for name, exact in found.items() if exact)
    return Selection(tuple(sorted(found)), meant, tuple(empty), tuple(errors))


def _select_folding_case(texts: Sequence[str], among: Iterable[TableName]) -> Selection:
    small = {TableName(name.schema.lower(), name.name.lower()): name for name in among}
    found = select([text.lower() for text in texts], small)
    return Selection(
        tuple(sorted(small[name] for name in found.names)),
        frozenset(small[name] for name in found.named_tables),
        found.empty,
        found.errors,
    )


def _parse(texts: Sequence[str]) -> tuple[list[Pattern], list[Misconfigured]]:
    patterns: list[Pattern] = []
    errors: list[Misconfigured] = []
    for text in texts:
        try:
            patterns.append(Pattern.parse(text))
        except Misconfigured as error:
            errors.append(error)
    if patterns and all(pattern.excludes for pattern in patterns):
        errors.append(
            Misconfigured(
                "PATTERN_ONLY_EXCLUDES",
                "the patterns say which tables are left out, and not which are taken",
                hint=f"write '*.*' before {patterns[0].text!r} for all the others",
            )
        )
    return patterns, errors


def _literal(quoted: str) -> re.Pattern[str]:
    return re.compile(re.escape(quoted.replace('""', '"')))


def _wild(bare: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(character) or re.escape(character) for character in bare), re.DOTALL)


def _malformed_error(text: str) -> Misconfigured:
    return Misconfigured(
        "PATTERN_MALFORMED",
        f"{text!r} is not a pattern of tables",
        hint='write schema.table, with * and ? as wildcards, "double quotes" around parts that need them, '
        "and ! in front to leave tables out",
    )
