"""Evidence: do the statements of the stream explain the whole difference between two looks at a table?

    last look ── A1 ── A2 ──► now       every ALTER TABLE since then, in order: its steps (`steps`) are
                                        applied to the columns of the last look

The stream brings each statement at its place, so we know which rows lie before it and which after. The
catalog shows the outcome. Only both together prove anything:

* The names of the columns, in the order that the steps give, must be those of the catalog.
* A column that no step redefines must be the same. A column may be redefined once, as `values` allows.
* In older rows an added column has the value that `values` knows.

Any other difference is not proven.

A look is later than the statements that were brought, so it may show the work of further ones. So a column
must be exactly what its statement says (`_check_said`). If `MODIFY n tinyint` is followed by `MODIFY n int`,
only the values show the first one, and nothing is proven. A text column without a charset gets the table's
charset, as known from the last look and the statements since.

A statement that did something else than it says (IF EXISTS, another table of that name) does not fit, nor
does DDL that is in no log. Two statements that undo each other between two looks fit, and that is right: rows
between them come under the columns of that time.

Some kinds of ALTER compute a stored column again, by the settings of their session. So nothing is proven of a
table that has a stored column.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from headrace.core.conversion import Conversion, Part, Take, Value
from headrace.sources.mysql.catalog.table_def import ColumnRow, TableLook
from headrace.sources.mysql.ddl.steps import (
    FIRST,
    Add,
    AlterStatement,
    ColumnDeclaration,
    Default,
    DropColumn,
    Recode,
    Rename,
    Retype,
    Step,
)
from headrace.sources.mysql.ddl.values import is_integer, is_pure, value_before
from headrace.sources.mysql.types.columns import base_of, is_unsigned


@dataclass(frozen=True, slots=True)
class Version:
    """The columns of a table up to a statement, and the conversion of its rows to those of now."""

    conversion: Conversion
    columns: tuple[ColumnRow | None, ...]  # None: no look shows the column as it was


@dataclass(frozen=True, slots=True)
class ExplainedChanges:
    """The explained difference between two looks."""

    versions: tuple[Version, ...]  # the oldest first
    key: tuple[str, ...]  # the identity, with the columns' present names

    @property
    def parts(self) -> tuple[Part, ...]:
        return self.versions[0].conversion.parts


class _Unproven(Exception):
    """The statements do not explain the difference."""


@dataclass(frozen=True, slots=True)
class _Column:
    """A column while the statements are applied; `number` identifies it whatever its name is."""

    name: str
    number: int  # among all columns that ever were
    add: Add | None = None
    retypes: int = 0  # how often it was redefined
    strict: bool = True  # only by sessions that refuse values which they can't keep
    counts: bool = False  # a statement said AUTO_INCREMENT
    declaration: ColumnDeclaration | None = None  # of the statement that redefined it
    new_charset: str | None = None  # of a statement that converted all texts


_Columns = tuple[_Column, ...]
_UNKNOWN = "?"  # in place of a charset; no look shows it


def explain(
    last: TableLook, now: TableLook, key: Sequence[str], alterations: Sequence[tuple[int, AlterStatement]]
) -> ExplainedChanges | None:
    """Explain a look by the last one and the statements in between, with their times; None if not proven."""
    try:
        return _explain(last, now, key, alterations)
    except _Unproven:
        return None


def _explain(
    last: TableLook, now: TableLook, key: Sequence[str], told: Sequence[tuple[int, AlterStatement]]
) -> ExplainedChanges:
    shapes = [tuple(_Column(row.name, number) for number, row in enumerate(last.columns))]
    charset = last.charset or _UNKNOWN
    for step, (_, alteration) in enumerate(told):
        meant = _with_charset(alteration, charset)
        shapes.append(_alter(shapes[-1], meant, first=(step + 1) * 10_000))
        charset = _default_behind(alteration, charset)
    if charset not in (_UNKNOWN, now.charset):
        raise _Unproven
    if tuple(column.name for column in shapes[-1]) != tuple(row.name for row in now.columns):
        raise _Unproven
    rows = {column.number: row for column, row in zip(shapes[-1], now.columns, strict=True)}
    parts = dict(_parts(last, now, shapes[-1]))
    _check_table(last, now, shapes[-1])
    times = [time for time, _ in told]
    versions = [_version(*each, parts, rows, last) for each in zip(shapes[:-1], times, strict=True)]
    return ExplainedChanges(tuple(versions), _key_now(last, now, key, shapes[-1]))


# ── the columns behind the statements ───────────────────────────────────────────────────────────────


def _default_behind(alteration: AlterStatement, charset: str) -> str:
    """The default charset of texts after a statement."""
    said = [step.charset for step in alteration.steps if isinstance(step, Default | Recode)]
    return said[-1] if said else charset


def _with_charset(alteration: AlterStatement, charset: str) -> AlterStatement:
    """The statement with the default charset put into definitions that name none.

    If the statement also changes the default, the charset of its definitions is unknown.
    """
    if _default_behind(alteration, charset) != charset:
        charset = _UNKNOWN
    return replace(alteration, steps=tuple(_resolve(step, charset) for step in alteration.steps))


def _resolve(step: Step, charset: str) -> Step:
    if not isinstance(step, Add | Retype) or step.declaration.charset:
        return step
    return replace(step, declaration=replace(step.declaration, charset=charset))


def _alter(columns: _Columns, alteration: AlterStatement, *, first: int) -> _Columns:
    """The columns after a statement, in the server's order."""
    steps = [step for step in alteration.steps if not _does_nothing(columns, step)]
    taken = [_place(columns, step.old if isinstance(step, Rename | Retype) else step.name) for step in steps
             if isinstance(step, Rename | Retype | DropColumn)]  # fmt: skip
    recodes = any(isinstance(step, Recode) for step in steps)
    if len(set(taken)) < len(taken) or (recodes and any(isinstance(step, Retype) for step in steps)):
        raise _Unproven
    after = [each for column in columns for each in _keep(columns, column, steps, alteration)]
    for number, step in enumerate(steps):
        if isinstance(step, Add):
            _put(after, _Column(step.name, first + number, step), step.after)
        elif isinstance(step, Retype) and step.after is not None:
            _put(after, _retype(columns[_place(columns, step.old)], step, alteration), step.after)
    names = [column.name.lower() for column in after]
    if len(set(names)) < len(names) or not after:
        raise _Unproven
    return tuple(after)


def _does_nothing(columns: _Columns, step: Step) -> bool:
    """Tell whether a step did nothing, by its IF EXISTS or IF NOT EXISTS."""
    if isinstance(step, Recode | Default) or not step.lenient:
        return False
    if isinstance(step, Add):
        return _find(columns, step.name) is not None
    return _find(columns, step.name if isinstance(step, DropColumn) else step.old) is None


def _keep(
    columns: _Columns, column: _Column, steps: Sequence[Step], alteration: AlterStatement
) -> Iterator[_Column]:
    """Yield the column as it is after the statement, unless it was dropped or moved."""
    for charset in (step.charset for step in steps if isinstance(step, Recode)):
        strict = column.strict and alteration.strict
        column = replace(column, retypes=column.retypes + 1, strict=strict, new_charset=charset)
    for step in steps:
        match step:
            case DropColumn() if columns[_place(columns, step.name)].number == column.number:
                return
            case Rename() if columns[_place(columns, step.old)].number == column.number:
                yield replace(column, name=step.new)
                return
            case Retype() if columns[_place(columns, step.old)].number == column.number:
                if step.after is None:
                    yield _retype(column, step, alteration)
                return
    yield column


def _retype(column: _Column, step: Retype, alteration: AlterStatement) -> _Column:
    return replace(
        column,
        name=step.new,
        retypes=column.retypes + 1,
        strict=column.strict and alteration.strict,
        counts=column.counts or step.counts,
        declaration=step.declaration,
    )


def _put(columns: list[_Column], column: _Column, after: str | None) -> None:
    if after is None:
        columns.append(column)
    else:
        columns.insert(0 if after == FIRST else _place(tuple(columns), after) + 1, column)


def _place(columns: _Columns, name: str) -> int:
    found = _find(columns, name)
    if found is None:
        raise _Unproven
    return found


def _find(columns: _Columns, name: str) -> int | None:
    """The place of a column: by its exact name, or by one that differs only in the case of ASCII letters."""
    names = [column.name for column in columns]
    if name in names:
        return names.index(name)
    if not name.isascii():
        return None
    return next((place for place, known in enumerate(names) if known.lower() == name.lower()), None)


# ── the columns in the two looks ────────────────────────────────────────────────────────────────────


def _parts(last: TableLook, now: TableLook, columns: _Columns) -> Iterator[tuple[int, Part]]:
    """Yield for each present column its number, and its origin in the oldest rows."""
    for column, row in zip(columns, now.columns, strict=True):
        if column.add is None:
            _check_column(last.columns[column.number], row, column, last)
            _check_definition(last.columns[column.number], row, column, now)
            yield column.number, Take(column.number)
            continue
        _check_said(column.add.declaration, row, now)
        value = None if column.retypes else value_before(column.add, row)
        if value is None:
            raise _Unproven
        yield column.number, Value.of(value)


def _check_column(before: ColumnRow, after: ColumnRow, column: _Column, last: TableLook) -> None:
    called = replace(before, name=after.name, ordinal=after.ordinal, invisible=after.invisible)
    if called == after and not column.retypes:
        return
    counted = not column.counts or last.counting == before.name
    denied = before.nullable and not after.nullable and not column.strict
    plain = not (before.generation or after.generation) and before.srs_id == after.srs_id
    if column.retypes != 1 or denied or not (counted and plain and is_pure(before, after)):
        raise _Unproven


def _check_definition(before: ColumnRow, after: ColumnRow, column: _Column, now: TableLook) -> None:
    """Refuse a redefined column that differs from its definition, or whose NULLs the server filled."""
    if column.new_charset is not None and after.charset and _charset(after) != column.new_charset:
        raise _Unproven
    if column.declaration is None:
        return
    _check_said(column.declaration, after, now)
    # In any mode ALTER TABLE puts its own time into a timestamp that was NULL.
    if before.nullable and not after.nullable and base_of(after.column_type) == "timestamp":
        raise _Unproven


def _check_said(said: ColumnDeclaration, row: ColumnRow, now: TableLook) -> None:
    """Refuse a column that differs from a statement's definition: a later statement, not brought yet,
    changed it."""
    in_primary = now.primary and row.name in now.keys[0]
    if said.type != _spell(row) or (said.not_null == row.nullable and not in_primary):
        raise _Unproven
    if said.charset and row.charset and said.charset != _charset(row):
        raise _Unproven


def _charset(row: ColumnRow) -> str:
    return "utf8mb3" if row.charset == "utf8" else row.charset or ""


def _spell(row: ColumnRow) -> str:
    """The type of a column in the spelling of `ColumnDeclaration`, without widths of whole numbers."""
    base = base_of(row.column_type)
    if is_integer(row.column_type) or base == "year":
        return base + (" unsigned" if is_unsigned(row.column_type) and base != "year" else "")
    shown = row.column_type.removesuffix(" zerofill")
    return "geomcollection" if shown == "geometrycollection" else shown


def _check_table(last: TableLook, now: TableLook, columns: _Columns) -> None:
    """Refuse other differences of the table: its engine, its cascades, or computed columns."""
    rows = (*last.columns, *now.columns)
    computed = any(row.generation for row in rows)
    if any(row.generation == "s" for row in rows):
        raise _Unproven
    if computed and any(column.retypes for column in columns):
        raise _Unproven
    if (last.kind, last.engine) != (now.kind, now.engine) or not set(now.cascades) <= set(last.cascades):
        raise _Unproven


def _key_now(last: TableLook, now: TableLook, key: Sequence[str], columns: _Columns) -> tuple[str, ...]:
    """The identity with the columns' present names; raises unless it still is a key."""
    if not key:
        return ()
    names = {last.columns[column.number].name: column.name for column in columns if column.add is None}
    if any(name not in names for name in key):
        raise _Unproven
    called = tuple(names[name] for name in key)
    if called not in now.keys or last.primary != now.primary:
        raise _Unproven
    return called


def _version(
    columns: _Columns, until: int, parts: dict[int, Part], rows: dict[int, ColumnRow], last: TableLook
) -> Version:
    """The columns before a statement, and the conversion of their rows to those of now."""
    places = {column.number: place for place, column in enumerate(columns)}
    step = Conversion(
        tuple(column.name for column in columns),
        tuple(Take(places[number]) if number in places else part for number, part in parts.items()),
        until,
    )
    return Version(step, tuple(_row_then(column, rows.get(column.number), last) for column in columns))


def _row_then(column: _Column, now: ColumnRow | None, last: TableLook) -> ColumnRow | None:
    """The column before it was redefined: as in the last look; else as it is now."""
    if column.add is None and not column.retypes:
        return last.columns[column.number]
    return now
