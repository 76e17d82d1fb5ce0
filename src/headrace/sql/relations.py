"""The relations that a query names, and the query with other names in their places.

    SELECT o.id, public.items.n FROM "public".orders o JOIN public.items ON ...
                                     ──────────────        ────────────
    SELECT o.id, `items`.n      FROM `main.public.orders` o JOIN `main.public.items` AS `items` ON ...

A name of a temporary view in Spark has one part, so `schema.table` must become one name. A relation without
an alias gets its last part as alias, so that the query's names of columns still work. A column that is
written with the relation's whole name is shortened to that alias.

A name is a relation after FROM, JOIN, TABLE and DESCRIBE, and after a comma in a FROM list. The tokens alone
decide this: Spark's own parser can be reached only in a classic session, and gives no places. The FROM of
EXTRACT, TRIM and the like, and of IS DISTINCT FROM, begins no list. Names that WITH introduces belong to the
query.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from headrace.sql.tokens import SqlToken, tokens

_ENDS = frozenset(
    """WHERE GROUP HAVING ORDER LIMIT OFFSET WINDOW UNION INTERSECT EXCEPT MINUS SORT CLUSTER DISTRIBUTE
    SELECT QUALIFY LATERAL PIVOT UNPIVOT""".split()
)
_NO_ALIAS = _ENDS | frozenset(
    """ON USING JOIN INNER CROSS LEFT RIGHT FULL SEMI ANTI NATURAL OUTER TABLESAMPLE FOR VERSION TIMESTAMP
    SYSTEM_TIME SYSTEM_VERSION AND OR SET WHEN THEN ELSE END""".split()
)
_INNER_FROM = frozenset("EXTRACT TRIM SUBSTRING SUBSTR OVERLAY POSITION BTRIM LTRIM RTRIM".split())
_BEGINS_QUERY = frozenset("SELECT WITH VALUES FROM TABLE".split())
_SAYS_WHAT = frozenset("TABLE EXTENDED FORMATTED".split())


@dataclass(frozen=True, slots=True)
class Mention:
    """A name that stands for a relation, and its place in the text."""

    parts: tuple[str, ...]
    start: int
    stop: int
    bare: bool  # it has no alias, and could have one


@dataclass(frozen=True, slots=True)
class RewrittenQuery:
    """A query with other names; `original` maps its places back to the user's text."""

    text: str
    shifts: tuple[tuple[int, int], ...]  # from this place on, subtract so much

    def original(self, place: int) -> int:
        """The place in the user's text of the character at this place."""
        moved = [by for at, by in self.shifts if at <= place]
        return max(0, place - moved[-1]) if moved else place


@dataclass
class _Frame:
    """The state of the walk within one pair of parentheses."""

    in_from: bool = False
    expects: bool = False
    plain_from: bool = False  # FROM is part of a function's own syntax


@dataclass
class _Walk:
    """A walk over the tokens from left to right, with a frame for each open parenthesis."""

    tokens: Sequence[SqlToken]
    frames: list[_Frame] = field(default_factory=lambda: [_Frame()])
    mentions: list[Mention] = field(default_factory=list)

    def run(self) -> list[Mention]:
        at = 0
        if self._keyword(0) in ("DESCRIBE", "DESC"):
            at = next(i for i in range(1, len(self.tokens) + 1) if self._keyword(i) not in _SAYS_WHAT)
            if self._keyword(at) not in _BEGINS_QUERY and at < len(self.tokens):
                at = self._relation(at, described=True)
        while at < len(self.tokens):
            at = self._step(at)
        return self.mentions

    def _step(self, at: int) -> int:
        token, frame = self.tokens[at], self.frames[-1]
        if token.text == "(" and token.kind == "symbol":
            self._enter(at)
        elif token.text == ")" and token.kind == "symbol":
            if len(self.frames) > 1:
                self.frames.pop()
            self.frames[-1].expects = False
        elif token.text == "," and frame.in_from:
            frame.expects = True
        elif token.keyword == "LATERAL" and frame.expects:
            return at + 1
        elif frame.expects and token.name is not None and token.keyword not in _BEGINS_QUERY:
            frame.expects = False
            # TABLE x is a whole query and takes no alias.
            return self._relation(at, described=self._keyword(at - 1) == "TABLE")
        else:
            self._open(at)
        return at + 1

    def _open(self, at: int) -> None:
        """Note that a keyword begins a list of relations, or ends one."""
        frame, word = self.frames[-1], self.tokens[at].keyword
        distinct = self._keyword(at - 1) == "DISTINCT" and self._keyword(at - 2) in ("IS", "NOT")
        if (word == "FROM" and not frame.plain_from and not distinct) or word == "JOIN":
            frame.in_from = frame.expects = True
        elif word == "TABLE":
            frame.expects = True
        elif word in _ENDS:
            frame.in_from = frame.expects = False

    def _enter(self, at: int) -> None:
        outer = self.frames[-1]
        query = self._keyword(at + 1) in _BEGINS_QUERY
        nested = outer.expects and not query
        self.frames.append(
            _Frame(in_from=nested, expects=nested, plain_from=self._keyword(at - 1) in _INNER_FROM)
        )

    def _relation(self, at: int, *, described: bool = False) -> int:
        parts, stop = chain(self.tokens, at)
        following = self.tokens[stop] if stop < len(self.tokens) else None
        if following is not None and following.text == "(":
            return stop  # a function that yields rows, such as range(10)
        aliased = following is not None and (
            following.kind == "quoted"
            or (following.kind == "word" and following.keyword not in _NO_ALIAS)
            or following.keyword == "TABLESAMPLE"
        )
        first, last = self.tokens[at], self.tokens[stop - 1]
        self.mentions.append(Mention(parts, first.start, last.stop, not aliased and not described))
        return stop

    def _keyword(self, at: int) -> str:
        return self.tokens[at].keyword if 0 <= at < len(self.tokens) else ""


def chain(tokens: Sequence[SqlToken], at: int) -> tuple[tuple[str, ...], int]:
    """The name a.b.c that begins at a token, and the index of the token after it."""
    parts = [tokens[at].name or ""]
    at += 1
    while at + 1 < len(tokens) and tokens[at].text == "." and tokens[at + 1].name is not None:
        parts.append(tokens[at + 1].name or "")
        at += 2
    return tuple(parts), at


def mentions_in(sql: str) -> list[Mention]:
    """The names of relations in a query, without those that its own WITH introduces."""
    scanned = tokens(sql)
    own = list(_with_names(scanned))
    return [
        mention
        for mention in _Walk(scanned).run()
        if len(mention.parts) > 1 or not any(each.means(mention) for each in own)
    ]


def reads_plainly(sql: str) -> bool:
    """Tell whether each name that `mentions_in` finds must be a relation that exists.

    That is not so in statements of other forms (DESCRIBE FUNCTION f), or if Spark reads files by format and
    path.
    """
    first = next((token.keyword for token in tokens(sql) if token.text != "("), "")
    paths = any("/" in mention.parts[-1] for mention in mentions_in(sql))
    return first in ("SELECT", "WITH") and not paths


@dataclass(frozen=True, slots=True)
class _WithRelation:
    """A relation of WITH, and the part of the text in which its name means it."""

    name: str
    start: int
    stop: float

    def means(self, mention: Mention) -> bool:
        return mention.parts[0].lower() == self.name and self.start <= mention.start < self.stop


def _with_names(scanned: Sequence[SqlToken]) -> Iterator[_WithRelation]:
    """Yield the relations that WITH makes: the names before `AS (`.

    Inside its own query such a name means the table of that name, unless the WITH is recursive.
    """
    recursive = any(token.keyword == "RECURSIVE" for token in scanned)
    for at, token in enumerate(scanned):
        if token.keyword == "AS" and at + 1 < len(scanned) and scanned[at + 1].text == "(" and at > 0:
            before = at - 1
            if scanned[before].text == ")":
                while before > 0 and scanned[before].text != "(":
                    before -= 1
                before -= 1
            name = scanned[before].name
            if name is not None and before >= 0:
                end = _closing(scanned, at + 2)
                start = scanned[at + 1 if recursive or end == len(scanned) else end].start
                stop = _closing(scanned, end + 1)
                yield _WithRelation(name.lower(), start, scanned[stop].start if stop < len(scanned) else inf)


def _closing(scanned: Sequence[SqlToken], at: int) -> int:
    """The index of the parenthesis that closes the open one; past the last token if there is none."""
    depth = 1
    for place in range(at, len(scanned)):
        if scanned[place].kind == "symbol":
            depth += {"(": 1, ")": -1}.get(scanned[place].text, 0)
        if not depth:
            return place
    return len(scanned)


def rewritten(sql: str, names: Mapping[Mention, str]) -> RewrittenQuery:
    """The query with the given name in place of each mention."""
    edits = []
    for mention, view in names.items():
        alias = f" AS {_quote(mention.parts[-1])}" if mention.bare else ""
        edits.append((mention.start, mention.stop, _quote(view) + alias))
    edits += _columns(sql, [mention for mention in names if mention.bare and len(mention.parts) > 1])
    text, done, shifts, moved = "", 0, [], 0
    for start, stop, new in sorted(edits):
        text += sql[done:start] + new
        done = stop
        moved += len(new) - (stop - start)
        shifts.append((len(text), moved))
    return RewrittenQuery(text + sql[done:], tuple(shifts))


def _columns(sql: str, named: Sequence[Mention]) -> list[tuple[int, int, str]]:
    """The edits that shorten names of columns which begin with a relation's whole name."""
    scanned = tokens(sql)
    taken = {mention.start for mention in named}
    edits, at = [], 0
    while at < len(scanned):
        if scanned[at].name is None or scanned[at].start in taken:
            at = at + 1 if scanned[at].name is None else chain(scanned, at)[1]
            continue
        parts, stop = chain(scanned, at)
        for mention in named:
            width = len(mention.parts)
            if _fold_case(parts[:width]) == _fold_case(mention.parts) and _goes_on(
                scanned, at + 2 * width - 1
            ):
                last = scanned[at + 2 * width - 2]
                edits.append((scanned[at].start, last.stop, _quote(mention.parts[-1])))
                break
        at = stop
    return edits


def _goes_on(scanned: Sequence[SqlToken], at: int) -> bool:
    return at < len(scanned) and scanned[at].text == "."


def _fold_case(parts: Sequence[str]) -> list[str]:
    return [part.lower() for part in parts]


def _quote(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
