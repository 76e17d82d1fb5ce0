"""The rules of columns: which columns of a table may leave the source, and which of them as hashes.

    [source.main.columns]
    "public.users" = { exclude = ["ssn"] }              all but these
    "public.people" = { only = ["id", "name"] }         these and no others
    "public.mails" = { hash = ["address"] }             all, some of them as hashes (`core.hashing`)
    new_columns = "exclude"                             or "include": a column that comes later

A rule decides which columns a source sees when it looks at a table. The lake's schema comes from the look, a
copy selects the columns of that schema, and a decoder makes no others. So nothing above the source knows of a
column that stays out. A hashed column is a column of hashes there: the receiver puts hashes into the stream
before anything is written, and whoever reads a table hashes what it read (`pipeline.tasks.source_access`).

    first look      the columns that the rule lets through are written into the record of the rule (`columns`)
    later looks     only these, unless new columns are included: one that was added or renamed stays out
    another rule    refused for a table whose values the lake holds, unless `only` names further columns
    another key     refused for the same tables: their hashes would match nothing

Pure. The record of a mirror's objects upstream holds the rules: if a kind of source declares the option
`columns`, its record has their text under that name. It is the only part that the pipeline reads.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from headrace.core.errors import Definite, HeadraceError, Misconfigured
from headrace.core.names import TableName
from headrace.core.near import did_you_mean
from headrace.sources.contract.findings import Finding, Level
from headrace.sources.contract.values import COLUMNS, Json

_EXAMPLE = '"public.users" = { exclude = ["ssn"] }, or { only = ["id", "name"] }, or { hash = ["email"] }'
_NEW_LAKE = "mirror into a new lake, headrace run --lake NEW_DIR URL, and then remove this one"
_NEW = "new_columns"
_EXCLUDE, _INCLUDE = "exclude", "include"
_KEYS = ("exclude", "only", "hash")
_HASH_KEY = "hash_key"


@dataclass(frozen=True, slots=True)
class ColumnRule:
    """The rule of one table; `columns` are those that the lake holds, once somebody has looked."""

    exclude: tuple[str, ...] = ()
    only: tuple[str, ...] = ()  # empty: all but those of `exclude`
    columns: tuple[str, ...] = ()
    hash: tuple[str, ...] = ()  # these leave as hashes

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that the rule names."""
        return (*(self.exclude or self.only), *self.hash)

    def hashes(self, column: str) -> bool:
        """Tell whether a column leaves as hashes alone."""
        return column.lower() in {name.lower() for name in self.hash}

    def sends(self, column: str) -> bool:
        """Tell whether a column may leave the source."""
        listed = self.columns or self.only
        return not self.excludes(column) and (not listed or column in listed)

    def excludes(self, column: str) -> bool:
        """Tell whether the rule names a column as one that stays out."""
        # Without regard to case: a server may let a statement change only that of a name.
        return column.lower() in {name.lower() for name in self.exclude}

    def record(self) -> dict[str, list[str]]:
        """The rule as JSON has it."""
        fields = {
            "exclude": self.exclude,
            "only": self.only,
            "hash": self.hash,
            "columns": self.columns,
        }
        return {name: list(columns) for name, columns in fields.items() if columns}


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """The rules of a source, by table."""

    tables: Mapping[TableName, ColumnRule] = field(default_factory=dict)
    includes_new: bool = False
    hash_key: str = ""  # the fingerprint of the key that the lake's hashes were made with

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ColumnRules:
        """Read the rules that a person wrote, from the options of a source."""
        return _parse(options.get(COLUMNS.name, ""), _KEYS)

    @classmethod
    def parse(cls, text: str) -> ColumnRules:
        """Read the text of a record."""
        return _parse(text, (*_KEYS, "columns"), (_HASH_KEY,))

    @classmethod
    def of_record(cls, upstream: Json) -> ColumnRules:
        """Read the rules in the record of a mirror's objects upstream."""
        return cls.parse(upstream.get(COLUMNS.name, ""))

    def into(self, upstream: Json) -> Json:
        """Put the rules into the record of a mirror's objects upstream."""
        return {**upstream, COLUMNS.name: self.text}

    @property
    def text(self) -> str:
        """The rules as a record has them; empty without rules."""
        if not self.tables:
            return ""
        new = {_NEW: _INCLUDE} if self.includes_new else {}
        key = {_HASH_KEY: self.hash_key} if self.hash_key else {}
        tables = {str(name): rule.record() for name, rule in self.tables.items()}
        return json.dumps({**tables, **new, **key}, sort_keys=True)

    @property
    def options(self) -> dict[str, str]:
        """The rules as a person wrote them, as an option of the source."""
        bare = {name: replace(rule, columns=()) for name, rule in self.tables.items()}
        text = replace(self, tables=bare, hash_key="").text
        return {COLUMNS.name: text} if text else {}

    @property
    def has_hashes(self) -> bool:
        """Tell whether a column of any table leaves as hashes: then there must be a key."""
        return any(rule.hash for rule in self.tables.values())

    def sends(self, table: TableName, column: str) -> bool:
        """Tell whether a column of a table may leave the source, as it is or as hashes."""
        rule = self.tables.get(table)
        return rule is None or rule.sends(column)

    def hashes(self, table: TableName, column: str) -> bool:
        """Tell whether a column of a table leaves as hashes alone."""
        rule = self.tables.get(table)
        return rule is not None and rule.hashes(column)

    def shows(self, table: TableName, column: str) -> bool:
        """Tell whether the values of a column may leave as they are."""
        return self.sends(table, column) and not self.hashes(table, column)

    def forbidden(self, table: TableName, columns: Iterable[str]) -> list[str]:
        """The columns among these that must not leave."""
        return [column for column in columns if not self.sends(table, column)]

    def late_error(self, table: TableName, columns: Iterable[str]) -> HeadraceError | None:
        """The warning of columns that stay out and that nobody excluded; `only` excludes all others."""
        rule = self.tables.get(table, ColumnRule())
        late = [name for name in self.forbidden(table, columns) if not rule.excludes(name)]
        if rule.only or not late:
            return None
        return Misconfigured(
            "COLUMNS_LATER",
            f"columns that came later stay out of {table}",
            detail=_list_columns(late),
            hint=f'name them in "only" of "{table}", run again, then headrace tables resync {table}',
        )

    def fix_columns(self, columns: Mapping[TableName, Sequence[str]]) -> ColumnRules:
        """The rules once the lake holds these columns of these tables."""
        if self.includes_new:
            return self
        found = {}
        for name in columns.keys() & self.tables.keys():
            rule = self.tables[name]
            found[name] = replace(rule, columns=tuple(filter(rule.sends, columns[name])))
        return replace(self, tables={**self.tables, **found})

    def with_key(self, fingerprint: str) -> ColumnRules:
        """The rules with the fingerprint of the key; raises if the lake holds hashes of another key."""
        if not self.has_hashes:
            return replace(self, hash_key="")
        if self.hash_key not in ("", fingerprint):
            raise _key_changed_error(next(name for name, rule in self.tables.items() if rule.hash))
        return replace(self, hash_key=fingerprint)

    def follow(self, new_rules: ColumnRules, mirrored_tables: Collection[TableName]) -> ColumnRules:
        """The rules that a run goes on with; raises if the lake may hold values that they forbid."""
        names = sorted({*self.tables, *new_rules.tables})
        same_new = self.includes_new == new_rules.includes_new
        by_name = {
            name: _next_rule(
                name, self.tables.get(name), new_rules.tables.get(name), name in mirrored_tables, same_new
            )
            for name in names
        }
        rules = {name: rule for name, rule in by_name.items() if rule}
        held = any(rule.hash and (rule.columns or name in mirrored_tables) for name, rule in rules.items())
        return ColumnRules(rules, new_rules.includes_new, self.hash_key if held else "")


def _next_rule(
    name: TableName, before: ColumnRule | None, after: ColumnRule | None, is_mirrored: bool, same_new: bool
) -> ColumnRule | None:
    """Return the next rule of one table. The rule of a dropped table stays, for the lake still holds it.

    `same_new`: the old rules and the new ones treat later columns alike.
    """
    if not is_mirrored and (before is None or not before.columns):
        return after
    if before is not None:
        if after is None:
            if not is_mirrored:
                return before
        elif _bare(before) == _bare(after) and same_new:
            return before
        elif _names_more(before, after):
            return replace(after, columns=after.only if before.columns else ())
    raise _changed_error(name, before, after)


def _names_more(before: ColumnRule, after: ColumnRule) -> bool:
    """Tell whether a rule names all columns that the lake holds, and perhaps columns that came later."""
    held = {*(before.columns or before.only)}
    same_hashes = all(before.hashes(name) == after.hashes(name) for name in held)
    return bool(held) and same_hashes and held <= {*after.only} and not {*after.only} & {*before.exclude}


def _bare(rule: ColumnRule) -> tuple[frozenset[str], ...]:
    return frozenset(rule.exclude), frozenset(rule.only), frozenset(rule.hash)


def _changed_error(name: TableName, before: ColumnRule | None, after: ColumnRule | None) -> HeadraceError:
    was = "no rule" if before is None else json.dumps(replace(before, columns=()).record())
    asked = "none" if after is None else json.dumps(after.record())
    return Misconfigured(
        "COLUMNS_CHANGED",
        f"the rule of columns of {name} is not the one with which the lake mirrors it",
        detail=f"mirrored with {was}, asked for {asked}; the lake and its history keep what they hold",
        hint=f"give the rule as before; or {_NEW_LAKE}",
    )


def _key_changed_error(name: TableName) -> Misconfigured:
    return Misconfigured(
        "COLUMNS_HASH_KEY_CHANGED",
        f"the key of hashes is not the one with which the lake mirrors {name}",
        detail="hashes of two keys would not match, in the table, in its history, and in joins",
        hint=f"set HEADRACE_HASH_KEY to the key as before; or, if that is lost, {_NEW_LAKE}",
    )


def held_values_error(name: TableName) -> Misconfigured:
    """The error of a table with a rule whose values the lake held before it."""
    return Misconfigured(
        "COLUMNS_HELD",
        f"the lake held {name} before it had this rule of columns",
        detail="older versions of the table, and its history, may hold what the rule forbids",
        hint=_NEW_LAKE,
    )


def _parse(text: str, keys: Sequence[str], more: Sequence[str] = ()) -> ColumnRules:
    if not text:
        return ColumnRules()
    try:
        raw = json.loads(text)
    except ValueError:
        raw = None
    if not isinstance(raw, dict):
        raise _malformed_error("the rules of columns are not a table")
    new = raw.pop(_NEW, _EXCLUDE)
    if new not in (_EXCLUDE, _INCLUDE):
        raise _malformed_error(f'"{_NEW}" can be "{_EXCLUDE}" or "{_INCLUDE}"')
    known = {name: raw.pop(name) for name in more if name in raw}
    rules = {TableName.parse(name): _rule(name, said, keys) for name, said in raw.items()}
    return ColumnRules(rules, includes_new=new == _INCLUDE, **known)


def _rule(name: str, said: Any, keys: Sequence[str]) -> ColumnRule:
    if not isinstance(said, dict):
        raise _malformed_error(f'the rule of columns of "{name}" is not a table')
    for key, columns in said.items():
        if key not in keys:
            raise _malformed_error(f'"{key}" is no rule of columns', did_you_mean(key, _KEYS))
        if not isinstance(columns, list) or not columns or not all(isinstance(c, str) for c in columns):
            raise _malformed_error(f'"{key}" of "{name}" is not a list of columns')
    if not {*said} & {*_KEYS} or {"exclude", "only"} <= {*said}:
        raise _malformed_error(f'the rule of columns of "{name}" needs "exclude" or "only", or "hash"')
    rule = ColumnRule(**{key: tuple(columns) for key, columns in said.items()})
    kept_out = [column for column in rule.hash if not replace(rule, columns=()).sends(column)]
    if kept_out:
        raise _malformed_error(f'the rule of columns of "{name}" hashes "{kept_out[0]}", and keeps it out')
    return rule


def _malformed_error(primary: str, detail: str | None = None) -> Misconfigured:
    return Misconfigured("COLUMNS_MALFORMED", primary, detail=detail, hint=f"write {_EXAMPLE}")


NO_RULES = ColumnRules()


# --- rules against tables -------------------------------------------------------------------------


def rule_flaw(
    rules: ColumnRules, table: TableName, columns: Collection[str], key: Collection[str]
) -> HeadraceError | None:
    """The reason why the rule of a table can't be kept; None if it can, or if there is no rule.

    `columns` are those that the table has, `key` those that identify its rows.
    """
    rule = rules.tables.get(table)
    if rule is None:
        return None
    unknown = [] if rule.columns else sorted(set(rule.names).difference(columns))
    if unknown:
        return Misconfigured(
            "COLUMNS_UNKNOWN",
            f'the rule of columns of {table} names "{unknown[0]}", which the table does not have',
            detail=did_you_mean(unknown[0], columns),
            hint="name the columns as the table has them",
        )
    if unsent := rules.forbidden(table, key):
        return Misconfigured(
            "COLUMNS_KEY",
            f"the rule of columns of {table} leaves out a column of its key",
            detail=_list_columns(unsent),
            hint=f'let the key through: take it out of "exclude", or add it to "only", of "{table}"',
        )
    return None


def hash_type_error(table: TableName, column: str, type: str) -> Definite:
    """The error of a column to hash whose values have no text that is the same wherever they come from."""
    return Definite(
        "COLUMNS_HASH_TYPE",
        f'column "{column}" of {table} cannot be hashed',
        detail=f"its type is {type}: equal values may have several texts, and so several hashes",
        hint=f'hash texts, whole numbers, dates and uuids; put others into "exclude" of "{table}"',
    )


def check_rule(
    rules: ColumnRules, table: TableName, columns: Collection[str], key: Collection[str]
) -> list[Finding]:
    """The findings of a rule: its flaw, or the columns that stay out."""
    if table not in rules.tables:
        return []
    if (flaw := rule_flaw(rules, table, columns, key)) is not None:
        return [Finding(Level.ERROR, flaw, table=table)]
    out = rules.forbidden(table, columns)
    hashed = [column for column in columns if rules.hashes(table, column)]
    return list(_effects(table, out, hashed))


def _effects(table: TableName, out: Sequence[str], hashed: Sequence[str]) -> Iterator[Finding]:
    hint = 'nothing to do; a rule in "columns" says so'
    if out:
        primary = f"columns of {table} stay out of the lake"
        left_out = Misconfigured("COLUMNS_LEFT_OUT", primary, detail=_list_columns(out), hint=hint)
        yield Finding(Level.INFO, left_out, table=table)
    if hashed:
        primary = f"columns of {table} are hashed"
        as_hashes = Misconfigured("COLUMNS_HASHED", primary, detail=_list_columns(hashed), hint=hint)
        yield Finding(Level.INFO, as_hashes, table=table)


def _list_columns(columns: Sequence[str]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


def unknown_tables(rules: ColumnRules, there: Collection[TableName]) -> list[Finding]:
    """The errors of rules whose table is not there: of one misspelt or renamed, all columns would leave."""
    return [
        Finding(
            Level.ERROR,
            Misconfigured(
                "COLUMNS_TABLE_UNKNOWN",
                f"there is a rule of columns of {table}, and no such table",
                detail=did_you_mean(str(table), map(str, there)),
                hint="name the table as the source has it, or leave the rule out",
            ),
        )
        for table in rules.tables
        if table not in there
    ]
