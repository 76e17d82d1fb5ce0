"""The kind of value of a generated column's expression, if the value is the same for every session.

    concat(`name`,_utf8mb4'-',`n` + 1)   TEXT      upper(`day`)          WORDS
    cast(`txt` as date)                  Unknown   `price` / 100         Unknown

`kind_of` parses an expression as the servers print it. It knows the functions and operators that are listed
here. Each was tested on both servers, by sessions with different settings, over the same values. Everything
else raises `UnknownValue`: a function that is not listed, and an operand that makes a listed one depend on
the session:

    text or number to a date or time   time_zone (MySQL reads an offset in a text), sql_mode
    a timestamp                        time_zone
    a CHAR                             PAD_CHAR_TO_FULL_LENGTH
    exact / exact                      div_precision_increment
    unsigned - n                       NO_UNSIGNED_SUBTRACTION
    names of days and months           lc_time_names
    the bytes of a text of the session character_set_connection
    such texts compared                collation_connection

`ValueKind` has the kinds of values; rules say which of them convert and compare alike in every session. A
rule that does not know a kind, or knows that the session decides, raises `UnknownValue`. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto


class UnknownValue(Exception):
    """The value may depend on the session that computes it, as far as is known here."""


class ValueKind(Enum):
    """The kinds of values, which differ in what their conversion and comparison depend on."""

    NULL = auto()
    EXACT = auto()  # whole and decimal numbers
    UNSIGNED = auto()  # whole numbers that are unsigned
    FLOAT = auto()
    TEXT = auto()  # in a charset and a collation of its own
    CODED = auto()  # in a charset of its own, with the collation of the session
    WORDS = auto()  # in the charset of the session
    BYTES = auto()
    DATE = auto()
    DAY = auto()  # a computed date: if it is invalid, the session may make it NULL
    MOMENT = auto()  # date and time
    INSTANT = auto()  # a computed one
    TIME = auto()
    JSON = auto()


NUMBERS = frozenset((ValueKind.EXACT, ValueKind.UNSIGNED, ValueKind.FLOAT))
TEXTS = frozenset((ValueKind.TEXT, ValueKind.CODED, ValueKind.WORDS))
DAYS = frozenset((ValueKind.DATE, ValueKind.MOMENT))
MADE = frozenset((ValueKind.DAY, ValueKind.INSTANT))
CLOCKS = DAYS | {ValueKind.TIME}
WRITTEN = frozenset(
    (ValueKind.TEXT, ValueKind.CODED, ValueKind.BYTES, ValueKind.JSON)
)  # their bytes do not depend on the session
DOCUMENTS = frozenset((ValueKind.TEXT, ValueKind.JSON))
SCALARS = NUMBERS | TEXTS | {ValueKind.BYTES, ValueKind.JSON}


def check(kind: ValueKind, among: frozenset[ValueKind], result: ValueKind | None = None) -> ValueKind:
    """Check that a kind is among these; return the result's kind. NULL is of every kind."""
    if kind is not ValueKind.NULL and kind not in among:
        raise UnknownValue
    return kind if result is None else result


def compare(one: ValueKind, other: ValueKind) -> None:
    """Refuse a comparison that depends on the session."""
    kinds = {one, other} - {ValueKind.NULL}
    if kinds <= CLOCKS:
        if len(kinds) == 2 and ValueKind.TIME in kinds:
            raise UnknownValue
    elif not kinds <= SCALARS or (kinds <= {ValueKind.CODED, ValueKind.WORDS} and kinds):
        raise UnknownValue


def one_of(kinds: Sequence[ValueKind]) -> ValueKind:
    """The kind of a value that is one of several."""
    found = set(kinds) - {ValueKind.NULL}
    if found and found <= DAYS | MADE:
        return ValueKind.DAY if found <= {ValueKind.DATE, ValueKind.DAY} else ValueKind.INSTANT
    if len(found) <= 1:
        return found.pop() if found else ValueKind.NULL
    if found <= NUMBERS:
        return ValueKind.FLOAT if ValueKind.FLOAT in found else ValueKind.UNSIGNED
    return join_texts(list(found))


def join_texts(kinds: Sequence[ValueKind]) -> ValueKind:
    """The kind of a text that is made of several."""
    found = set(kinds) - {ValueKind.NULL}
    if not found <= SCALARS | CLOCKS:
        raise UnknownValue
    for kind in (ValueKind.BYTES, ValueKind.TEXT, ValueKind.JSON, ValueKind.CODED):
        if kind in found:
            if kind is ValueKind.BYTES and ValueKind.WORDS in found | {_as_text(each) for each in found}:
                raise UnknownValue
            return ValueKind.TEXT if kind is ValueKind.JSON else kind
    return ValueKind.WORDS


def _as_text(kind: ValueKind) -> ValueKind:
    return ValueKind.WORDS if kind in NUMBERS | CLOCKS else kind


_TOKEN = re.compile(
    r"\s*(?:`(?P<name>(?:[^`]|``)*)`|(?P<charset>_[a-z0-9]+)?\s*'(?P<text>(?:[^'\\]|\\.|'')*)'"
    r"|(?P<number>\d+(?:\.\d*)?(?P<power>e[+-]?\d+)?|\.\d+)|(?P<word>[a-z_][\w$]*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|<<|>>|[-+*/%=<>!~^&|(),]))",
    re.DOTALL | re.IGNORECASE,
)
_END = ("end", "")
_Token = tuple[str, str]  # its sort and its text
_PLAIN_FORMAT = re.compile(r"(?:[^%\\]|%[cDdefHhIijklmpTrSsUuVvwXxYy%])*")
_UNITS = frozenset("year quarter month week day hour minute second".split())
_DAY_UNITS = frozenset("year quarter month week day".split())


def kind_of(expression: str, columns: Mapping[str, ValueKind]) -> ValueKind:
    """The kind of an expression over columns (their names in lower case); may raise `UnknownValue`."""
    reader = _Reader(_tokens(expression), columns)
    found = reader.value()
    if reader.next != _END:
        raise UnknownValue
    return found


def _tokens(expression: str) -> list[_Token]:
    found: list[_Token] = []
    at, text = 0, expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise UnknownValue
        sort = match.lastgroup or ""
        if sort == "name":
            found.append((sort, match["name"].replace("``", "`").lower()))
        elif sort == "text":
            found.append(("coded" if match["charset"] else "text", match["text"]))
        else:
            sort = "float" if match["power"] else "number" if match["number"] else sort
            found.append((sort, match[0].strip().lower()))
        at = match.end()
    return found


class _Reader:
    """Parses tokens by the precedence of operators; its methods return the kind of the parsed part."""

    def __init__(self, tokens: Sequence[_Token], columns: Mapping[str, ValueKind]) -> None:
        self._tokens = tokens
        self._columns = columns
        self._at = 0

    @property
    def next(self) -> _Token:
        return self._tokens[self._at] if self._at < len(self._tokens) else _END

    def read(self) -> _Token:
        token = self.next
        self._at += 1
        return token

    def skip(self, *words: str) -> bool:
        """Read one of these words or signs, if it comes next."""
        if self.next[0] in ("word", "sign") and self.next[1] in words:
            self._at += 1
            return True
        return False

    def expect(self, word: str) -> None:
        if not self.skip(word):
            raise UnknownValue

    def value(self) -> ValueKind:
        """Parse a whole expression; AND, OR, XOR and NOT take the truth of any kind."""
        found = self._negation()
        while self.skip("and", "or", "xor"):
            self._negation()
            found = ValueKind.EXACT
        return found

    def _negation(self) -> ValueKind:
        if self.skip("not"):
            self._negation()
            return ValueKind.EXACT
        return self._comparison()

    def _comparison(self) -> ValueKind:
        found = self.operand(0)
        while True:
            if self.skip("is"):
                self.skip("not")
                if not self.skip("null", "true", "false", "unknown"):
                    raise UnknownValue
            elif self.skip("=", "<=>", "<", ">", "<=", ">=", "<>", "!="):
                compare(found, self.operand(0))
            else:
                is_not = self.skip("not")
                if not self._among(found):
                    if is_not:
                        raise UnknownValue
                    return found
            found = ValueKind.EXACT

    def _among(self, found: ValueKind) -> bool:
        """Parse BETWEEN, IN or LIKE, if one of these comes next."""
        if self.skip("between"):
            compare(found, self.operand(0))
            self.expect("and")
            compare(found, self.operand(0))
        elif self.skip("in"):
            self.expect("(")
            for each in self.arguments():
                compare(found, each)
        elif self.skip("like"):
            sort, pattern = self.next
            # NO_BACKSLASH_ESCAPES decides which character escapes.
            if sort not in ("text", "coded") or "\\" in pattern:
                raise UnknownValue
            check(found, TEXTS)
            compare(found, self.operand(0))
            if self.skip("escape"):
                raise UnknownValue
        else:
            return False
        return True

    def operand(self, level: int) -> ValueKind:
        """Parse operators of a level of `_LEVELS`, and of later levels, which bind more tightly."""
        if level == len(_LEVELS):
            return self._sign()
        found = self.operand(level + 1)
        while self.next[0] in ("word", "sign") and self.next[1] in _LEVELS[level]:
            _, sign = self.read()
            if sign in "+-" and self.skip("interval"):
                found = self._interval(found)
            else:
                found = _LEVELS[level][sign](found, self.operand(level + 1))
        return found

    def _interval(self, found: ValueKind) -> ValueKind:
        """Parse the interval that is added to a date or time."""
        is_whole = self.next[0] == "number" and "." not in self.next[1]
        check(self.operand(0), NUMBERS)
        unit = self.read()[1]
        if unit not in _UNITS or (unit == "second" and not is_whole):
            raise UnknownValue
        return check(
            found,
            DAYS,
            ValueKind.DAY if found is ValueKind.DATE and unit in _DAY_UNITS else ValueKind.INSTANT,
        )

    def _sign(self) -> ValueKind:
        if self.skip("-"):
            return ValueKind.FLOAT if _number(self._sign()) is ValueKind.FLOAT else ValueKind.EXACT
        if self.skip("~"):
            return _bits(self._sign(), ValueKind.EXACT)
        if self.skip("!"):
            self._sign()
            return ValueKind.EXACT
        found = self._single()
        while self.skip("collate"):
            check(found, TEXTS)
            self.read()
            found = ValueKind.TEXT
        return found

    def _single(self) -> ValueKind:
        sort, said = self.read()
        if sort == "name":
            if said not in self._columns:
                raise UnknownValue
            return self._columns[said]
        if sort != "word":
            if (sort, said) == ("sign", "("):
                found = self.value()
                self.expect(")")
                return found
            if sort in _LITERALS:
                return _LITERALS[sort]
            raise UnknownValue
        if said in ("null", "true", "false"):
            return ValueKind.NULL if said == "null" else ValueKind.EXACT
        if said == "case":
            return self._case()
        self.expect("(")
        special = _SPECIAL.get(said)
        if special is not None:
            found = special(self)
            self.expect(")")
            return found
        function = _FUNCTIONS.get(said)
        if function is None:
            raise UnknownValue
        return function(self.arguments())

    def arguments(self) -> list[ValueKind]:
        """Parse arguments, up to the closing parenthesis."""
        if self.skip(")"):
            return []
        found = [self.value()]
        while self.skip(","):
            found.append(self.value())
        self.expect(")")
        return found

    def _case(self) -> ValueKind:
        subject = None if self.next == ("word", "when") else self.value()
        found: list[ValueKind] = []
        while self.skip("when"):
            condition = self.value()
            if subject is not None:
                compare(subject, condition)
            self.expect("then")
            found.append(self.value())
        if self.skip("else"):
            found.append(self.value())
        self.expect("end")
        return one_of(found)


_LITERALS: Mapping[str, ValueKind] = {
    "text": ValueKind.WORDS,
    "coded": ValueKind.CODED,
    "number": ValueKind.EXACT,
    "float": ValueKind.FLOAT,
}


# ── rules ───────────────────────────────────────────────────────────────────────────────────────────


def _search(kinds: Sequence[ValueKind]) -> ValueKind:
    for other in kinds[1:]:
        if kinds[0] not in NUMBERS or other not in NUMBERS:
            compare(
                *(ValueKind.WORDS if each in NUMBERS else check(each, SCALARS) for each in (kinds[0], other))
            )
    return ValueKind.EXACT


def _replace(kinds: Sequence[ValueKind]) -> ValueKind:
    _search(kinds[:2])
    return join_texts(kinds)


def _number(kind: ValueKind) -> ValueKind:
    """The kind of a value as a number in a calculation."""
    return kind if check(kind, SCALARS - {ValueKind.BYTES}) in NUMBERS else ValueKind.FLOAT


def _sum(one: ValueKind, other: ValueKind) -> ValueKind:
    return one_of((_number(one), _number(other)))


def _less(one: ValueKind, other: ValueKind) -> ValueKind:
    found = _sum(one, other)
    if found is not ValueKind.FLOAT and ValueKind.UNSIGNED in (one, other):
        raise UnknownValue
    return found


def _divide(one: ValueKind, other: ValueKind) -> ValueKind:
    if _sum(one, other) is not ValueKind.FLOAT:
        raise UnknownValue
    return ValueKind.FLOAT


def _divided_whole(one: ValueKind, other: ValueKind) -> ValueKind:
    _sum(one, other)
    return ValueKind.UNSIGNED if ValueKind.UNSIGNED in (one, other) else ValueKind.EXACT


def _bits(one: ValueKind, other: ValueKind) -> ValueKind:
    check(one, NUMBERS)
    return check(other, NUMBERS, ValueKind.UNSIGNED)


_Operator = Callable[[ValueKind, ValueKind], ValueKind]
_LEVELS: Sequence[Mapping[str, _Operator]] = (
    {"|": _bits},
    {"&": _bits},
    {"<<": _bits, ">>": _bits},
    {"+": _sum, "-": _less},
    {"*": _sum, "/": _divide, "%": _sum, "mod": _sum, "div": _divided_whole},
    {"^": _bits},
)


# ── functions ───────────────────────────────────────────────────────────────────────────────────────

_Function = Callable[[Sequence[ValueKind]], ValueKind]


def _of(
    first: frozenset[ValueKind], result: ValueKind | None = None, rest: frozenset[ValueKind] = NUMBERS
) -> _Function:
    """The rule of a function of one value, and perhaps of more."""

    def function(kinds: Sequence[ValueKind]) -> ValueKind:
        if not kinds:
            raise UnknownValue
        for kind in kinds[1:]:
            check(kind, rest)
        return check(kinds[0], first, result)

    return function


def _text_of(kinds: Sequence[ValueKind]) -> ValueKind:
    """The rule of a function that returns its first argument as a text; further ones are numbers."""
    for kind in kinds[1:]:
        check(kind, NUMBERS)
    return join_texts(kinds[:1])


def _if(kinds: Sequence[ValueKind]) -> ValueKind:
    return one_of(kinds[1:])


def _coalesce(kinds: Sequence[ValueKind]) -> ValueKind:
    """The first argument that is not NULL. An invalid date may be NULL as date and time, but not as text."""
    found = one_of(kinds)
    if found in MADE:
        raise UnknownValue
    return found


def _nullif(kinds: Sequence[ValueKind]) -> ValueKind:
    if len(kinds) != 2:
        raise UnknownValue
    compare(*kinds)
    return check(kinds[0], SCALARS)


def _extreme(kinds: Sequence[ValueKind]) -> ValueKind:
    if not (set(kinds) - {ValueKind.NULL} <= NUMBERS or set(kinds) == {ValueKind.TEXT}):
        raise UnknownValue
    return one_of(kinds)


def _week(kinds: Sequence[ValueKind]) -> ValueKind:
    """The rule of WEEK. Without a second argument its result depends on default_week_format."""
    if len(kinds) != 2:
        raise UnknownValue
    return _of(DAYS, ValueKind.EXACT)(kinds)


def _each(names: str, function: _Function) -> dict[str, _Function]:
    return dict.fromkeys(names.split(), function)


_FUNCTIONS: Mapping[str, _Function] = {
    **_each("concat concat_ws", join_texts),
    **_each("lower upper lcase ucase reverse ltrim rtrim left right substr substring mid", _text_of),
    **_each("lpad rpad", lambda kinds: join_texts([*kinds[:1], *kinds[2:]])),
    **_each("replace", _replace),
    **_each("locate instr", _search),
    **_each("char_length character_length", _of(SCALARS - {ValueKind.BYTES}, ValueKind.EXACT)),
    **_each("length octet_length bit_length ascii ord crc32", _of(WRITTEN, ValueKind.EXACT)),
    **_each("md5 sha sha1 sha2", _of(WRITTEN, ValueKind.WORDS)),
    **_each("hex", _of(WRITTEN | {ValueKind.EXACT, ValueKind.UNSIGNED}, ValueKind.WORDS)),
    **_each("to_base64", _of(WRITTEN, ValueKind.WORDS)),
    **_each("unhex from_base64 uuid_to_bin", _of(TEXTS, ValueKind.BYTES)),
    **_each("bin_to_uuid", _of(frozenset((ValueKind.BYTES,)), ValueKind.WORDS)),
    **_each("if", _if),
    **_each("coalesce ifnull", _coalesce),
    **_each("nullif", _nullif),
    **_each("isnull", _of(frozenset(ValueKind), ValueKind.EXACT)),
    **_each("greatest least", _extreme),
    **_each("abs ceil ceiling floor round truncate", _of(NUMBERS)),
    **_each("mod", _of(NUMBERS, ValueKind.UNSIGNED)),
    **_each("sign bit_count", _of(NUMBERS, ValueKind.EXACT)),
    **_each("sqrt exp ln log2 log10 pow power", _of(NUMBERS, ValueKind.FLOAT)),
    **_each("json_unquote json_type", _of(TEXTS | {ValueKind.JSON}, ValueKind.TEXT)),
    **_each("json_length json_depth json_valid", _of(DOCUMENTS, ValueKind.EXACT, TEXTS)),
    **_each("json_contains json_contains_path", _of(DOCUMENTS, ValueKind.EXACT, TEXTS | {ValueKind.JSON})),
    **_each("json_extract", _of(DOCUMENTS, ValueKind.JSON, TEXTS)),
    **_each("json_keys", _of(DOCUMENTS, ValueKind.JSON, TEXTS)),
    **_each(
        "year month day dayofmonth dayofweek dayofyear weekday quarter to_days", _of(DAYS, ValueKind.EXACT)
    ),
    **_each("hour minute second microsecond", _of(DAYS | {ValueKind.TIME}, ValueKind.EXACT)),
    **_each("date last_day", _of(DAYS, ValueKind.DAY)),
    **_each("datediff", _of(DAYS, ValueKind.EXACT, DAYS)),
    **_each("week yearweek", _week),
}


# ── functions with words between their arguments ────────────────────────────────────────────────────


def _cast(reader: _Reader) -> ValueKind:
    """Parse CAST: `x as type`."""
    found = reader.value()
    reader.expect("as")
    return _conversion(reader, found)


def _json_value(reader: _Reader) -> ValueKind:
    """Parse JSON_VALUE, whose type MySQL prints; ON EMPTY and ON ERROR are not known here."""
    check(reader.value(), DOCUMENTS)
    reader.expect(",")
    check(reader.value(), TEXTS)
    return _conversion(reader, ValueKind.JSON) if reader.skip("returning") else ValueKind.TEXT


def _conversion(reader: _Reader, found: ValueKind) -> ValueKind:
    """Parse a type; return the kind of the value converted to it."""
    _, named = reader.read()
    while reader.skip("("):
        reader.arguments()
    if named in ("signed", "unsigned", "integer", "int"):
        reader.skip("integer", "int")
        return check(found, SCALARS, ValueKind.UNSIGNED if named == "unsigned" else ValueKind.EXACT)
    if named == "decimal":
        return check(found, SCALARS, ValueKind.EXACT)
    if named in ("double", "float", "real"):
        return check(found, SCALARS, ValueKind.FLOAT)
    if named == "char":
        charset = reader.read()[1] if reader.skip("charset") else None
        if charset == "binary":
            return check(found, WRITTEN, ValueKind.BYTES)
        return check(
            found, SCALARS - {ValueKind.BYTES} | CLOCKS, ValueKind.CODED if charset else ValueKind.WORDS
        )
    if named == "binary":
        return check(found, WRITTEN, ValueKind.BYTES)
    if named == "date":
        return check(found, DAYS, ValueKind.DAY)
    if named == "json":
        return check(found, SCALARS - {ValueKind.BYTES}, ValueKind.JSON)
    raise UnknownValue


def _convert(reader: _Reader) -> ValueKind:
    """Parse CONVERT: `x using charset`."""
    check(reader.value(), TEXTS | NUMBERS | {ValueKind.JSON})
    reader.expect("using")
    reader.read()
    return ValueKind.CODED


def _extract(reader: _Reader) -> ValueKind:
    """Parse EXTRACT: `unit from x`."""
    if reader.read()[1] not in _UNITS - {"week"}:  # the week depends on default_week_format
        raise UnknownValue
    reader.expect("from")
    return check(reader.value(), DAYS, ValueKind.EXACT)


def _difference(reader: _Reader) -> ValueKind:
    """Parse TIMESTAMPDIFF: a unit and two times."""
    if reader.read()[1] not in _UNITS:
        raise UnknownValue
    for _ in range(2):
        reader.expect(",")
        check(reader.value(), DAYS)
    return ValueKind.EXACT


def _date_format(reader: _Reader) -> ValueKind:
    """Parse DATE_FORMAT; refuse names of days and months."""
    check(reader.value(), DAYS)
    reader.expect(",")
    sort, form = reader.next
    if sort not in ("text", "coded") or _PLAIN_FORMAT.fullmatch(form) is None:
        raise UnknownValue
    reader.read()
    return ValueKind.WORDS


def _trim(reader: _Reader) -> ValueKind:
    """Parse TRIM, perhaps with the side and the text to remove."""
    reader.skip("both", "leading", "trailing")
    found = [reader.value()]
    if reader.skip("from"):
        found.append(reader.value())
    return join_texts(found)


def _position(reader: _Reader) -> ValueKind:
    """Parse LOCATE as MySQL may print it: `x in y`."""
    found = reader.operand(0)
    reader.expect("in")
    return _search([found, reader.operand(0)])


_SPECIAL: Mapping[str, Callable[[_Reader], ValueKind]] = {
    "cast": _cast,
    "convert": _convert,
    "date_format": _date_format,
    "extract": _extract,
    "json_value": _json_value,
    "position": _position,
    "timestampdiff": _difference,
    "trim": _trim,
}
