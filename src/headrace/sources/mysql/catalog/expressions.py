"""The kind of value that a generated column's expression makes, where it is one for every session.

    concat(`name`,_utf8mb4'-',`n` + 1)   TEXT      upper(`day`)          WORDS
    cast(`txt` as date)                  Unknown   `price` / 100         Unknown

`kind_of` reads an expression as the servers print it, and knows the functions and operators that are listed
here. Each of these was asked of both servers, by sessions with other settings, over the same values. All
else is `Unknown`: a function that is not listed, and an operand by which a listed one hangs on the session:

    text or number to a date or time   time_zone (MySQL reads an offset in a text), sql_mode
    a timestamp                        time_zone
    a CHAR                             PAD_CHAR_TO_FULL_LENGTH
    exact / exact                      div_precision_increment
    unsigned - n                       NO_UNSIGNED_SUBTRACTION
    names of days and months           lc_time_names
    the bytes of a text of the session character_set_connection
    such texts compared                collation_connection

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto


class Unknown(Exception):
    """The value may hang on the session that computes it, for all that is known here."""


class Kind(Enum):
    """The values of an expression, by what converting and comparing them hangs on."""

    NULL = auto()
    EXACT = auto()  # whole and decimal numbers
    UNSIGNED = auto()  # whole numbers that are unsigned
    FLOAT = auto()
    TEXT = auto()  # in a charset and a collation of its own
    CODED = auto()  # in a charset of its own, compared as the session says
    WORDS = auto()  # in the charset of the session
    BYTES = auto()
    DATE = auto()
    DAY = auto()  # a date that was made: of one that is none, the session may make NULL
    MOMENT = auto()  # date and time
    INSTANT = auto()  # one that was made
    TIME = auto()
    JSON = auto()


NUMBERS = frozenset((Kind.EXACT, Kind.UNSIGNED, Kind.FLOAT))
TEXTS = frozenset((Kind.TEXT, Kind.CODED, Kind.WORDS))
DAYS = frozenset((Kind.DATE, Kind.MOMENT))
MADE = frozenset((Kind.DAY, Kind.INSTANT))
CLOCKS = DAYS | {Kind.TIME}
WRITTEN = frozenset((Kind.TEXT, Kind.CODED, Kind.BYTES, Kind.JSON))  # whose bytes hang on nobody
_DOCUMENTS = frozenset((Kind.TEXT, Kind.JSON))
_SCALARS = NUMBERS | TEXTS | {Kind.BYTES, Kind.JSON}

_TOKEN = re.compile(
    r"\s*(?:`(?P<name>(?:[^`]|``)*)`|(?P<charset>_[a-z0-9]+)?\s*'(?P<text>(?:[^'\\]|\\.|'')*)'"
    r"|(?P<number>\d+(?:\.\d*)?(?P<power>e[+-]?\d+)?|\.\d+)|(?P<word>[a-z_][\w$]*)"
    r"|(?P<sign><=>|<=|>=|<>|!=|<<|>>|[-+*/%=<>!~^&|(),]))",
    re.DOTALL | re.IGNORECASE,
)
_END = ("end", "")
_Token = tuple[str, str]  # its sort and what it says
_PLAIN_FORMAT = re.compile(r"(?:[^%\\]|%[cDdefHhIijklmpTrSsUuVvwXxYy%])*")
_UNITS = frozenset("year quarter month week day hour minute second".split())
_DAY_UNITS = frozenset("year quarter month week day".split())


def kind_of(expression: str, columns: Mapping[str, Kind]) -> Kind:
    """The kind of an expression over columns, whose names are in lower case; raises `Unknown`."""
    reader = _Reader(_tokens(expression), columns)
    found = reader.value()
    if reader.next != _END:
        raise Unknown
    return found


def _tokens(expression: str) -> list[_Token]:
    found: list[_Token] = []
    at, text = 0, expression.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Unknown
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
    """Reads tokens by the precedence of operators, and gives the kind of what it has read."""

    def __init__(self, tokens: Sequence[_Token], columns: Mapping[str, Kind]) -> None:
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
            raise Unknown

    def value(self) -> Kind:
        """A whole expression; AND, OR, XOR and NOT ask every kind for its truth."""
        found = self._negated()
        while self.skip("and", "or", "xor"):
            self._negated()
            found = Kind.EXACT
        return found

    def _negated(self) -> Kind:
        if self.skip("not"):
            self._negated()
            return Kind.EXACT
        return self._compared()

    def _compared(self) -> Kind:
        found = self.operand(0)
        while True:
            if self.skip("is"):
                self.skip("not")
                if not self.skip("null", "true", "false", "unknown"):
                    raise Unknown
            elif self.skip("=", "<=>", "<", ">", "<=", ">=", "<>", "!="):
                compare(found, self.operand(0))
            else:
                is_not = self.skip("not")
                if not self._among(found):
                    if is_not:
                        raise Unknown
                    return found
            found = Kind.EXACT

    def _among(self, found: Kind) -> bool:
        """BETWEEN, IN and LIKE, if one of these comes next."""
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
            # Which sign escapes says NO_BACKSLASH_ESCAPES.
            if sort not in ("text", "coded") or "\\" in pattern:
                raise Unknown
            check(found, TEXTS)
            compare(found, self.operand(0))
            if self.skip("escape"):
                raise Unknown
        else:
            return False
        return True

    def operand(self, level: int) -> Kind:
        """Operators of a level of `_LEVELS` and of those behind it, which bind more."""
        if level == len(_LEVELS):
            return self._signed()
        found = self.operand(level + 1)
        while self.next[0] in ("word", "sign") and self.next[1] in _LEVELS[level]:
            _, sign = self.read()
            if sign in "+-" and self.skip("interval"):
                found = self._moved(found)
            else:
                found = _LEVELS[level][sign](found, self.operand(level + 1))
        return found

    def _moved(self, found: Kind) -> Kind:
        """A date or a moment, so much later or earlier."""
        is_whole = self.next[0] == "number" and "." not in self.next[1]
        check(self.operand(0), NUMBERS)
        unit = self.read()[1]
        if unit not in _UNITS or (unit == "second" and not is_whole):
            raise Unknown
        return check(found, DAYS, Kind.DAY if found is Kind.DATE and unit in _DAY_UNITS else Kind.INSTANT)

    def _signed(self) -> Kind:
        if self.skip("-"):
            return Kind.FLOAT if _number(self._signed()) is Kind.FLOAT else Kind.EXACT
        if self.skip("~"):
            return _bits(self._signed(), Kind.EXACT)
        if self.skip("!"):
            self._signed()
            return Kind.EXACT
        found = self._single()
        while self.skip("collate"):
            check(found, TEXTS)
            self.read()
            found = Kind.TEXT
        return found

    def _single(self) -> Kind:
        sort, said = self.read()
        if sort == "name":
            if said not in self._columns:
                raise Unknown
            return self._columns[said]
        if sort != "word":
            if (sort, said) == ("sign", "("):
                found = self.value()
                self.expect(")")
                return found
            if sort in _LITERALS:
                return _LITERALS[sort]
            raise Unknown
        if said in ("null", "true", "false"):
            return Kind.NULL if said == "null" else Kind.EXACT
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
            raise Unknown
        return function(self.arguments())

    def arguments(self) -> list[Kind]:
        """Arguments, up to the parenthesis that closes them."""
        if self.skip(")"):
            return []
        found = [self.value()]
        while self.skip(","):
            found.append(self.value())
        self.expect(")")
        return found

    def _case(self) -> Kind:
        subject = None if self.next == ("word", "when") else self.value()
        found: list[Kind] = []
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


_LITERALS: Mapping[str, Kind] = {
    "text": Kind.WORDS,
    "coded": Kind.CODED,
    "number": Kind.EXACT,
    "float": Kind.FLOAT,
}


# ── rules ───────────────────────────────────────────────────────────────────────────────────────────


def check(found: Kind, among: frozenset[Kind], result: Kind | None = None) -> Kind:
    """The result of a value of one of these kinds; NULL is of each."""
    if found is not Kind.NULL and found not in among:
        raise Unknown
    return found if result is None else result


def compare(one: Kind, other: Kind) -> None:
    """Refuse a comparison that hangs on the session."""
    kinds = {one, other} - {Kind.NULL}
    if kinds <= CLOCKS:
        if len(kinds) == 2 and Kind.TIME in kinds:
            raise Unknown
    elif not kinds <= _SCALARS or (kinds <= {Kind.CODED, Kind.WORDS} and kinds):
        raise Unknown


def one_of(kinds: Sequence[Kind]) -> Kind:
    """The kind of a value that is one of some."""
    found = set(kinds) - {Kind.NULL}
    if found and found <= DAYS | MADE:
        return Kind.DAY if found <= {Kind.DATE, Kind.DAY} else Kind.INSTANT
    if len(found) <= 1:
        return found.pop() if found else Kind.NULL
    if found <= NUMBERS:
        return Kind.FLOAT if Kind.FLOAT in found else Kind.UNSIGNED
    return _joined(list(found))


def _joined(kinds: Sequence[Kind]) -> Kind:
    """The kind of texts that are put together, or of one that is made of others."""
    found = set(kinds) - {Kind.NULL}
    if not found <= _SCALARS | CLOCKS:
        raise Unknown
    for kind in (Kind.BYTES, Kind.TEXT, Kind.JSON, Kind.CODED):
        if kind in found:
            if kind is Kind.BYTES and Kind.WORDS in found | {_as_text(each) for each in found}:
                raise Unknown
            return Kind.TEXT if kind is Kind.JSON else kind
    return Kind.WORDS


def _as_text(kind: Kind) -> Kind:
    return Kind.WORDS if kind in NUMBERS | CLOCKS else kind


def _searched(kinds: Sequence[Kind]) -> Kind:
    for other in kinds[1:]:
        if kinds[0] not in NUMBERS or other not in NUMBERS:
            compare(*(Kind.WORDS if each in NUMBERS else check(each, _SCALARS) for each in (kinds[0], other)))
    return Kind.EXACT


def _replaced(kinds: Sequence[Kind]) -> Kind:
    _searched(kinds[:2])
    return _joined(kinds)


def _number(kind: Kind) -> Kind:
    """The number that a value is in a calculation."""
    return kind if check(kind, _SCALARS - {Kind.BYTES}) in NUMBERS else Kind.FLOAT


def _sum(one: Kind, other: Kind) -> Kind:
    return one_of((_number(one), _number(other)))


def _less(one: Kind, other: Kind) -> Kind:
    found = _sum(one, other)
    if found is not Kind.FLOAT and Kind.UNSIGNED in (one, other):
        raise Unknown
    return found


def _divided(one: Kind, other: Kind) -> Kind:
    if _sum(one, other) is not Kind.FLOAT:
        raise Unknown
    return Kind.FLOAT


def _divided_whole(one: Kind, other: Kind) -> Kind:
    _sum(one, other)
    return Kind.UNSIGNED if Kind.UNSIGNED in (one, other) else Kind.EXACT


def _bits(one: Kind, other: Kind) -> Kind:
    check(one, NUMBERS)
    return check(other, NUMBERS, Kind.UNSIGNED)


_Operator = Callable[[Kind, Kind], Kind]
_LEVELS: Sequence[Mapping[str, _Operator]] = (
    {"|": _bits},
    {"&": _bits},
    {"<<": _bits, ">>": _bits},
    {"+": _sum, "-": _less},
    {"*": _sum, "/": _divided, "%": _sum, "mod": _sum, "div": _divided_whole},
    {"^": _bits},
)


# ── functions ───────────────────────────────────────────────────────────────────────────────────────

_Function = Callable[[Sequence[Kind]], Kind]


def _of(first: frozenset[Kind], result: Kind | None = None, rest: frozenset[Kind] = NUMBERS) -> _Function:
    """A function of a value, and maybe of some more."""

    def function(kinds: Sequence[Kind]) -> Kind:
        if not kinds:
            raise Unknown
        for kind in kinds[1:]:
            check(kind, rest)
        return check(kinds[0], first, result)

    return function


def _text_of(kinds: Sequence[Kind]) -> Kind:
    """A function that makes a text of its first argument; others are numbers."""
    for kind in kinds[1:]:
        check(kind, NUMBERS)
    return _joined(kinds[:1])


def _if(kinds: Sequence[Kind]) -> Kind:
    return one_of(kinds[1:])


def _coalesce(kinds: Sequence[Kind]) -> Kind:
    """The first that is not NULL, which a date that is none may be as a moment, and is not as a text."""
    found = one_of(kinds)
    if found in MADE:
        raise Unknown
    return found


def _nullif(kinds: Sequence[Kind]) -> Kind:
    if len(kinds) != 2:
        raise Unknown
    compare(*kinds)
    return check(kinds[0], _SCALARS)


def _extreme(kinds: Sequence[Kind]) -> Kind:
    if not (set(kinds) - {Kind.NULL} <= NUMBERS or set(kinds) == {Kind.TEXT}):
        raise Unknown
    return one_of(kinds)


def _week(kinds: Sequence[Kind]) -> Kind:
    """Without a second argument default_week_format says which one it is."""
    if len(kinds) != 2:
        raise Unknown
    return _of(DAYS, Kind.EXACT)(kinds)


def _each(names: str, function: _Function) -> dict[str, _Function]:
    return dict.fromkeys(names.split(), function)


_FUNCTIONS: Mapping[str, _Function] = {
    **_each("concat concat_ws", _joined),
    **_each("lower upper lcase ucase reverse ltrim rtrim left right substr substring mid", _text_of),
    **_each("lpad rpad", lambda kinds: _joined([*kinds[:1], *kinds[2:]])),
    **_each("replace", _replaced),
    **_each("locate instr", _searched),
    **_each("char_length character_length", _of(_SCALARS - {Kind.BYTES}, Kind.EXACT)),
    **_each("length octet_length bit_length ascii ord crc32", _of(WRITTEN, Kind.EXACT)),
    **_each("md5 sha sha1 sha2", _of(WRITTEN, Kind.WORDS)),
    **_each("hex", _of(WRITTEN | {Kind.EXACT, Kind.UNSIGNED}, Kind.WORDS)),
    **_each("to_base64", _of(WRITTEN, Kind.WORDS)),
    **_each("unhex from_base64 uuid_to_bin", _of(TEXTS, Kind.BYTES)),
    **_each("bin_to_uuid", _of(frozenset((Kind.BYTES,)), Kind.WORDS)),
    **_each("if", _if),
    **_each("coalesce ifnull", _coalesce),
    **_each("nullif", _nullif),
    **_each("isnull", _of(frozenset(Kind), Kind.EXACT)),
    **_each("greatest least", _extreme),
    **_each("abs ceil ceiling floor round truncate", _of(NUMBERS)),
    **_each("mod", _of(NUMBERS, Kind.UNSIGNED)),
    **_each("sign bit_count", _of(NUMBERS, Kind.EXACT)),
    **_each("sqrt exp ln log2 log10 pow power", _of(NUMBERS, Kind.FLOAT)),
    **_each("json_unquote json_type", _of(TEXTS | {Kind.JSON}, Kind.TEXT)),
    **_each("json_length json_depth json_valid", _of(_DOCUMENTS, Kind.EXACT, TEXTS)),
    **_each("json_contains json_contains_path", _of(_DOCUMENTS, Kind.EXACT, TEXTS | {Kind.JSON})),
    **_each("json_extract", _of(_DOCUMENTS, Kind.JSON, TEXTS)),
    **_each("json_keys", _of(_DOCUMENTS, Kind.JSON, TEXTS)),
    **_each("year month day dayofmonth dayofweek dayofyear weekday quarter to_days", _of(DAYS, Kind.EXACT)),
    **_each("hour minute second microsecond", _of(DAYS | {Kind.TIME}, Kind.EXACT)),
    **_each("date last_day", _of(DAYS, Kind.DAY)),
    **_each("datediff", _of(DAYS, Kind.EXACT, DAYS)),
    **_each("week yearweek", _week),
}


# ── functions with words between their arguments ────────────────────────────────────────────────────


def _cast(reader: _Reader) -> Kind:
    """CAST: `x as type`."""
    found = reader.value()
    reader.expect("as")
    return _converted(reader, found)


def _json_value(reader: _Reader) -> Kind:
    """JSON_VALUE, of which MySQL prints the type; its ON EMPTY and ON ERROR are not known here."""
    check(reader.value(), _DOCUMENTS)
    reader.expect(",")
    check(reader.value(), TEXTS)
    return _converted(reader, Kind.JSON) if reader.skip("returning") else Kind.TEXT


def _converted(reader: _Reader, found: Kind) -> Kind:
    """A value as a type that comes next says."""
    _, named = reader.read()
    while reader.skip("("):
        reader.arguments()
    if named in ("signed", "unsigned", "integer", "int"):
        reader.skip("integer", "int")
        return check(found, _SCALARS, Kind.UNSIGNED if named == "unsigned" else Kind.EXACT)
    if named == "decimal":
        return check(found, _SCALARS, Kind.EXACT)
    if named in ("double", "float", "real"):
        return check(found, _SCALARS, Kind.FLOAT)
    if named == "char":
        charset = reader.read()[1] if reader.skip("charset") else None
        if charset == "binary":
            return check(found, WRITTEN, Kind.BYTES)
        return check(found, _SCALARS - {Kind.BYTES} | CLOCKS, Kind.CODED if charset else Kind.WORDS)
    if named == "binary":
        return check(found, WRITTEN, Kind.BYTES)
    if named == "date":
        return check(found, DAYS, Kind.DAY)
    if named == "json":
        return check(found, _SCALARS - {Kind.BYTES}, Kind.JSON)
    raise Unknown


def _convert(reader: _Reader) -> Kind:
    """CONVERT: `x using charset`."""
    check(reader.value(), TEXTS | NUMBERS | {Kind.JSON})
    reader.expect("using")
    reader.read()
    return Kind.CODED


def _extract(reader: _Reader) -> Kind:
    """EXTRACT: `unit from x`."""
    if reader.read()[1] not in _UNITS - {"week"}:  # of which default_week_format says which one it is
        raise Unknown
    reader.expect("from")
    return check(reader.value(), DAYS, Kind.EXACT)


def _difference(reader: _Reader) -> Kind:
    """TIMESTAMPDIFF: a unit, and two moments."""
    if reader.read()[1] not in _UNITS:
        raise Unknown
    for _ in range(2):
        reader.expect(",")
        check(reader.value(), DAYS)
    return Kind.EXACT


def _date_format(reader: _Reader) -> Kind:
    """DATE_FORMAT, without the names of days and months."""
    check(reader.value(), DAYS)
    reader.expect(",")
    sort, form = reader.next
    if sort not in ("text", "coded") or _PLAIN_FORMAT.fullmatch(form) is None:
        raise Unknown
    reader.read()
    return Kind.WORDS


def _trimmed(reader: _Reader) -> Kind:
    """TRIM, maybe with what it takes away, and where."""
    reader.skip("both", "leading", "trailing")
    found = [reader.value()]
    if reader.skip("from"):
        found.append(reader.value())
    return _joined(found)


def _position(reader: _Reader) -> Kind:
    """LOCATE as MySQL may print it: `x in y`."""
    found = reader.operand(0)
    reader.expect("in")
    return _searched([found, reader.operand(0)])


_SPECIAL: Mapping[str, Callable[[_Reader], Kind]] = {
    "cast": _cast,
    "convert": _convert,
    "date_format": _date_format,
    "extract": _extract,
    "json_value": _json_value,
    "position": _position,
    "timestampdiff": _difference,
    "trim": _trimmed,
}
