"""One codec for records: frozen dataclasses as JSON holds them, and back.

    by the field's type                 record
    ──────────────────────────────────  ──────────────────────────────────────────────────────────
    `str`, `int`, `float`, `bool`       itself; a boolean is no number
    `X | None`                          null, or as X
    `bytes`, `datetime`, an `Enum`      base64, ISO 8601, its value
    a dataclass                         {"field": ...}, in the order of its fields
    `@as_list`, a named tuple           [...], the same without names
    `tuple[X, ...]`, `frozenset[X]`     [...], the latter sorted
    `Mapping[str, X]`                   {...}
    `Mapping[K, X]`                     [[key, value], ...]
    a union of `@with_tag` dataclasses    as each of them, and a key that says which one it is
    `Any`                               itself: a record that somebody else reads
    what was told to `register`         as it was told

Where a record differs from its dataclass, the field's metadata says so (`on_disk`), and nothing else does.

A record comes from a disk, so nothing in it is trusted: an unknown key, a missing one, or a value of another
type is refused (`RECORD_MALFORMED`). A `lenient` reader takes what it knows and leaves out the rest, for the
status, which another release may have written. An error names keys and types, never a value. A reader goes as
deep as the dataclasses do, whatever the record holds. The work on types is done once a type.
"""

from __future__ import annotations

import base64
import json
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from operator import attrgetter, itemgetter
from typing import Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints, overload

from headrace.core.errors import HeadraceError, Misconfigured, error_of, parts_of

T = TypeVar("T")
Convert = Callable[[Any], Any]

_KEY = "headrace.on_disk"
_OWN: dict[Any, tuple[Convert, Convert]] = {}
_LISTS: set[type] = set()
_TAGS: dict[type, tuple[str, str]] = {}


class RecordMalformed(Misconfigured, ValueError):
    """A record differs from its dataclass; a `ValueError` too, for those who judge a file as a whole."""

    codes = ("RECORD_MALFORMED",)


@dataclass(frozen=True, slots=True)
class _OnDisk:
    name: str | None = None
    optional: bool = False
    sparse: bool = False
    inline: bool = False
    outside: bool = False
    by: tuple[Convert, Convert] | None = None


def on_disk(
    name: str | None = None,
    *,
    optional: bool = False,
    sparse: bool = False,
    inline: bool = False,
    outside: bool = False,
    by: tuple[Convert, Convert] | None = None,
) -> Mapping[str, Any]:
    """Return the metadata of a field whose record differs from it.

    name      the key on disk
    optional  the key may be missing; the field then has its default
    sparse    the key is left out where the field has its default
    inline    the keys of the nested dataclass stand beside the others, none where it is None (lenient alone)
    outside   the field is not in the record: the reader is given it, or it has its default
    by        how the value is written, and how it is read
    """
    return {_KEY: _OnDisk(name, optional, sparse, inline, outside, by)}


@overload
def to_record(value: None) -> None: ...


@overload
def to_record(value: object) -> dict[str, Any]: ...


def to_record(value: object) -> Any:
    """Return the record of a dataclass, or of what is registered, as `json.dumps` takes it; of None null."""
    kind: Any = type(value)
    form = _form_of(kind)
    return value if form.write is None else form.write(value)


def from_record(kind: type[T], record: Any, *, lenient: bool = False, **outside: Any) -> T:
    """Read what `to_record` makes; `outside` are the fields that are not in the record."""
    known: Any = kind
    try:
        if outside:
            value: T = _record(known, lenient).read(record, outside)
        else:
            value = _form(known, lenient).read(record)
    except _Wrong as wrong:
        raise _refusal(kind, wrong) from None
    return value


def parse(kind: type[T], text: str | bytes) -> T:
    """Read a record out of its JSON."""
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise _refusal(kind, _Wrong("it is no JSON")) from None
    return from_record(kind, record)


def register(kind: Any, write: Convert, read: Convert) -> None:
    """Tell how a type, or a union of types, is written and read.

    `read` may raise an error of ours, which reaches the caller, or a ValueError, LookupError or TypeError.
    """
    _OWN[kind] = (write, read)


def as_list(kind: type[T]) -> type[T]:
    """Make the record of a dataclass the list of its fields."""
    _LISTS.add(kind)
    return kind


def with_tag(key: str, tag: str) -> Callable[[type[T]], type[T]]:
    """Make the record of a dataclass say under a key, before all others, which one of a union it is."""

    def mark(kind: type[T]) -> type[T]:
        _TAGS[kind] = (key, tag)
        return kind

    return mark


# --- what is wrong --------------------------------------------------------------------------------


class _Wrong(Exception):
    """A fault of a record; `path` leads to it."""

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why, self.path = why, ""

    def inside(self, part: object) -> _Wrong:
        self.path = f"{part}.{self.path}" if self.path else str(part)
        return self


_NAMES: Mapping[type, str] = {str: "text", int: "number", float: "number", dict: "object", type(None): "null"}


def _name(kind: type) -> str:
    return _NAMES.get(kind, kind.__name__)


def _refusal(kind: Any, wrong: _Wrong) -> RecordMalformed:
    return RecordMalformed(
        "RECORD_MALFORMED",
        f'a record of the kind "{getattr(kind, "__name__", kind)}" cannot be read',
        detail=f'at "{wrong.path}": {wrong.why}' if wrong.path else wrong.why,
        hint="use the version of headrace that wrote it, or a newer one; else restore the file from a backup",
    )


def _refuse(value: Any, expected: str) -> NoReturn:
    raise _Wrong(f"{_name(type(value))} in the place of {expected}")


def _items(record: Any) -> Sequence[Any]:
    if type(record) is not list and type(record) is not tuple:
        _refuse(record, "list")
    return record


def _keys(record: Any) -> dict[str, Any]:
    if type(record) is not dict:
        _refuse(record, "object")
    return record


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Form:
    """The way in which values of one type are written and read."""

    write: Convert | None  # None: as they are
    read: Convert
    plain: type | None = None  # a value of exactly this type is read as it is

    def part(self, place: object, value: Any) -> Any:
        """Read a value that stands within another."""
        try:
            return value if type(value) is self.plain else self.read(value)
        except _Wrong as wrong:
            raise wrong.inside(place) from None


def _scalar(kind: type) -> _Form:
    def read(value: Any) -> Any:
        if type(value) is kind or (kind is float and type(value) is int):
            return value
        _refuse(value, _name(kind))

    return _Form(None, read, kind)


_SCALARS = {kind: _scalar(kind) for kind in (str, int, float, bool, dict, type(None))}
_ANY = _Form(None, lambda value: value)


def _foreign(write: Convert, read: Convert) -> _Form:
    """A form whose reader is somebody else's."""

    def read_foreign(value: Any) -> Any:
        try:
            return read(value)
        except HeadraceError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError):
            raise _Wrong(f"{_name(type(value))} that cannot be read") from None

    return _Form(write, read_foreign)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


@cache
def _form_of(kind: Any) -> _Form:
    """The form of a class by itself, or by its registered parent."""
    return _form(next((each for each in kind.__mro__ if each in _OWN), kind), False)


@cache
def _form(annotation: Any, lenient: bool) -> _Form:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if annotation in _OWN:
        return _foreign(*_OWN[annotation])
    if annotation is Any:
        return _ANY
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    if annotation is bytes:
        return _foreign(_base64, _bytes)
    if annotation is datetime:
        return _foreign(datetime.isoformat, datetime.fromisoformat)
    if origin in (Union, types.UnionType):
        return _union(arguments, lenient)
    if origin is not None:
        return _container(origin, arguments, lenient)
    if issubclass(annotation, Enum):
        return _foreign(attrgetter("value"), annotation)
    record = _record(annotation, lenient)
    return _Form(record.write, record.read)


def _union(kinds: Sequence[Any], lenient: bool) -> _Form:
    inner = [kind for kind in kinds if kind is not type(None)]
    form = _form(inner[0], lenient) if len(inner) == 1 else _by_tag(inner, lenient)
    if len(inner) == len(kinds):
        return form
    write, read = form.write, form.read
    return _Form(
        None if write is None else lambda value: None if value is None else write(value),
        lambda value: None if value is None else read(value),
        form.plain,
    )


def _by_tag(kinds: Sequence[type], lenient: bool) -> _Form:
    (key,) = {_TAGS[kind][0] for kind in kinds}
    tags = {_TAGS[kind][1]: _form(kind, lenient) for kind in kinds}

    def read(record: Any) -> Any:
        tag = _keys(record).get(key)
        if not isinstance(tag, str) or tag not in tags:
            raise _Wrong("no kind that is known").inside(key)
        return tags[tag].read(record)

    return _Form(to_record, read)


def _container(origin: Any, arguments: Sequence[Any], lenient: bool) -> _Form:
    if issubclass(origin, Mapping):
        key, value = (_form(each, lenient) for each in arguments)
        return _by_name(value) if arguments[0] is str else _pairs(key, value)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return _row(tuple, [_form(each, lenient) for each in arguments])
    return _several(frozenset if origin is frozenset else tuple, _form(arguments[0], lenient))


def _several(make: Any, each: _Form) -> _Form:
    inner, plain, convert = each.write, each.plain, each.read

    def write(values: Any) -> list[Any]:
        parts = list(values) if inner is None else [inner(value) for value in values]
        return sorted(parts) if make is frozenset else parts

    def read(record: Any) -> Any:
        items, parts = _items(record), []
        try:
            for value in items:
                parts.append(value if type(value) is plain else convert(value))
        except _Wrong as wrong:
            raise wrong.inside(len(parts)) from None
        return make(parts)

    return _Form(write, read)


def _row(make: Convert, forms: Sequence[_Form]) -> _Form:
    """A list of so many parts, each of its own type."""
    writes = [form.write or _ANY.read for form in forms]

    def write(values: Any) -> list[Any]:
        return [convert(value) for convert, value in zip(writes, values, strict=True)]

    def read(record: Any) -> Any:
        if len(_items(record)) != len(forms):
            raise _Wrong(f"{len(record)} parts in the place of {len(forms)}")
        return make([form.part(at, record[at]) for at, form in enumerate(forms)])

    return _Form(write, read)


def _by_name(each: _Form) -> _Form:
    inner = each.write

    def write(values: Any) -> dict[str, Any]:
        return dict(values) if inner is None else {name: inner(value) for name, value in values.items()}

    def read(record: Any) -> Any:
        if each is _ANY or {*map(type, _keys(record).values())} <= {each.plain}:
            return _keys(record)
        return {name: each.part(name, value) for name, value in record.items()}

    return _Form(write, read, dict if each is _ANY else None)


def _pairs(key: _Form, value: _Form) -> _Form:
    rows = _several(tuple, _row(tuple, (key, value)))
    write = rows.write or _ANY.read
    return _Form(lambda values: write(values.items()), lambda record: dict(rows.read(record)))


# --- dataclasses ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Record:
    """The way in which a dataclass is written, and read with the fields that are not in its record."""

    write: Convert
    read: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class _Field:
    name: str  # in the class
    key: str  # on disk
    form: _Form
    disk: _OnDisk
    default: Any  # MISSING: it has none
    inner: frozenset[str]  # the keys of an inline one

    @classmethod
    def of(cls, field: Field[Any], annotation: Any, lenient: bool) -> _Field:
        how: _OnDisk = field.metadata.get(_KEY, _OnDisk())
        form = _form(annotation, lenient) if how.by is None else _foreign(*how.by)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        kinds: list[Any] = list(filter(is_dataclass, get_args(annotation))) if how.inline else []
        inner = frozenset(each.key for kind in kinds for each in _fields(kind, lenient))
        return cls(field.name, how.name or field.name, form, how, default, inner)


@cache
def _fields(kind: Any, lenient: bool) -> tuple[_Field, ...]:
    """The fields of a dataclass that are in its record."""
    hints = get_type_hints(kind)
    every = (_Field.of(each, hints[each.name], lenient) for each in fields(kind) if each.init)
    return tuple(each for each in every if not each.disk.outside)


@cache
def _record(kind: Any, lenient: bool) -> _Record:
    if issubclass(kind, tuple):
        forms = [_form(hint, lenient) for hint in get_type_hints(kind).values()]
        row = _row(lambda parts: kind(*parts), forms)
        return _Record(row.write or _ANY.read, row.read)
    mine = _fields(kind, lenient)  # a TypeError of what is no dataclass
    if kind in _LISTS:
        return _list_record(kind, mine)
    return _Record(_writer(kind, mine), (_lenient_reader if lenient else _reader)(kind, mine))


def _list_record(kind: Any, mine: Sequence[_Field]) -> _Record:
    names = [each.name for each in mine]
    row = _row(lambda parts: _build(kind, dict(zip(names, parts, strict=True))), [each.form for each in mine])
    write = row.write or _ANY.read
    return _Record(lambda value: write([getattr(value, name) for name in names]), row.read)


def _build(kind: Any, values: Mapping[str, Any]) -> Any:
    try:
        return kind(**values)
    except HeadraceError:
        raise
    except (ValueError, TypeError):
        raise _Wrong("parts that do not go together") from None


def _writer(kind: Any, mine: Sequence[_Field]) -> Convert:
    head = dict([_TAGS[kind]]) if kind in _TAGS else {}
    parts = [(each, each.form.write or _ANY.read) for each in mine]
    names, keys = [each.name for each in mine], [each.key for each in mine]
    converted = [(each.key, each.form.write) for each in mine if each.form.write is not None]

    def write(value: Any) -> dict[str, Any]:
        record: dict[str, Any] = dict(head)
        for key, name in zip(keys, names, strict=True):
            record[key] = getattr(value, name)
        for key, convert in converted:
            record[key] = convert(record[key])
        return record

    def write_apart(value: Any) -> dict[str, Any]:
        record: dict[str, Any] = dict(head)
        for each, convert in parts:
            part = getattr(value, each.name)
            if each.disk.inline:
                record.update(convert(part) or {})
            elif not each.disk.sparse or part != each.default:
                record[each.key] = convert(part)
        return record

    return write_apart if any(each.disk.inline or each.disk.sparse for each in mine) else write


def _reader(kind: Any, mine: Sequence[_Field]) -> Callable[..., Any]:
    """A reader that takes a record as it has to be at once, and looks closer where it is otherwise."""
    tag, keys = _TAGS.get(kind), [each.key for each in mine]
    get = itemgetter(*keys, keys[0])  # a tuple, even of one
    rows = [(each.form.plain, each.form.read) for each in mine]
    is_positional = (
        tag is None and [each.name for each in mine] == [each.name for each in fields(kind)][: len(mine)]
    )
    closer = _close_reader(kind, mine)

    def read(record: Any, outside: Mapping[str, Any] | None = None) -> Any:
        if not is_positional or outside or type(record) is not dict or len(record) != len(keys):
            return closer(record, outside)
        try:
            parts = zip(get(record), rows, strict=False)
            return kind(*[part if type(part) is plain else convert(part) for part, (plain, convert) in parts])
        except (_Wrong, KeyError, ValueError, TypeError):
            return closer(record, outside)

    return read


def _close_reader(kind: Any, mine: Sequence[_Field]) -> Callable[..., Any]:
    tag, keys = _TAGS.get(kind), {each.key for each in mine}
    keys |= set() if tag is None else {tag[0]}
    needed = keys - {each.key for each in mine if each.disk.optional or each.disk.sparse}

    def read(record: Any, outside: Mapping[str, Any] | None) -> Any:
        there = _keys(record).keys()
        for key in (*(needed - there), *(there - keys)):
            why = "a key that is missing" if key in keys else "a key that is not known"
            raise _Wrong(why).inside(str(key)[:60])
        if tag is not None and record[tag[0]] != tag[1]:
            raise _Wrong("another kind").inside(tag[0])
        found = {each.name: each.form.part(each.key, record[each.key]) for each in mine if each.key in record}
        return _build(kind, {**found, **(outside or {})})

    return read


def _lenient_reader(kind: Any, mine: Sequence[_Field]) -> Callable[..., Any]:
    def read(record: Any, outside: Mapping[str, Any] | None = None) -> Any:
        values: dict[str, Any] = dict(outside) if outside else {}
        for each in mine:
            if each.inner:
                part = {key: record[key] for key in each.inner & _keys(record).keys()}
            elif each.key in _keys(record):
                part = record[each.key]
            else:
                continue
            try:
                values[each.name] = each.form.part(each.key, (part or None) if each.inner else part)
            except (_Wrong, HeadraceError):
                continue
        return _build(kind, values)

    return read


register(HeadraceError, parts_of, error_of)
