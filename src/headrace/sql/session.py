"""One lake, one Spark: runs a statement and returns its rows, or a line about what it did.

A query sees all tables at one cut: the one that `at` names, else the newest when the statement begins. A name
is looked up in this order; a name that two kinds of one step have is an error:

    its own WITH · a view in the lake's registry, a registered source, a table (schema.table, or the bare
    name if only one schema has it) · any source of the lake · names that the Spark session knows

Only the relations that a query names are registered with Spark, so a lake of a thousand tables answers as
quickly as one of three. Our own statements are in `register`; they need Spark only to check a view.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.names import quote_identifier
from headrace.core.near import did_you_mean
from headrace.lake.format.registry import RegisteredView, Registry
from headrace.lake.read.cut import Cut
from headrace.lake.read.intervals import Name, ambiguous
from headrace.lake.read.lake import Lake
from headrace.lake.read.resolve import NoMark
from headrace.spark import queries
from headrace.sql import rawrows, register
from headrace.sql.relations import Mention, RewrittenQuery, mentions_in, reads_plainly, rewritten
from headrace.sql.statements import CreateView, SparkQuery, Statement, parse
from headrace.sql.tokens import malformed_error

At = int | str | datetime | None
Expanding = tuple[str, ...]
LAST_EXACT = "last-exact"  # read each query at the newest mark that holds all its tables


@dataclass(frozen=True, slots=True)
class SqlAnswer:
    """Rows, or a line about what was done; `places` names the query's position in each source."""

    rows: pa.Table | None = None
    line: str | None = None
    places: tuple[str, ...] = ()


class SourceNotRun(Misconfigured):
    """The source is registered, but the lake holds nothing of it yet."""

    codes = ("SQL_SOURCE_NOT_RUN",)


class SqlSession:
    """Runs statements on a lake; starts Spark when the first of them needs it."""

    def __init__(
        self,
        path: str,
        start: Callable[[], Any],
        *,
        at: At = None,
        source: str | None = None,
        expect: Callable[[], None] = lambda: None,
        alone: bool = False,
    ) -> None:
        self.path = path
        self._start = start
        self._expect = expect  # called shortly before Spark is needed
        self.alone = alone  # Spark knows no table but the lake's
        self._at = at
        self._source = source
        self._lake: Lake | None = None
        self._spark: Any = None

    @property
    def lake(self) -> Lake:
        if self._lake is None:
            self._lake = Lake(self.path)
        return self._lake

    @property
    def registry(self) -> Registry:
        return Registry(self.lake.store)

    @property
    def spark(self) -> Any:
        if self._spark is None:
            self._spark = self._start()
            queries.prepare(self._spark)
        return self._spark

    def cut(self) -> Cut:
        """The cut at which this session reads now."""
        return self.lake.cut(self._moment, self._source)

    @property
    def _moment(self) -> At:
        """The place for reads outside of queries; with `LAST_EXACT`, which is for queries, the newest."""
        return None if self._at == LAST_EXACT else self._at

    def run(self, sql: str) -> SqlAnswer:
        """Run one statement."""
        statement = parse(sql)
        if isinstance(statement, SparkQuery):
            return self._query(statement.text)
        if isinstance(statement, CreateView):
            self.check(statement)
        return self._own(statement)

    def expect(self) -> None:
        """Say that Spark is needed soon; the names of the query have been checked."""
        self._expect()

    def known_names(self) -> list[str]:
        """The names that a prompt may complete."""
        tables = self.cut().standings.list_tables() if self.lake.sources() else []
        names = [text for _, table in tables for text in (str(table), table.name)]
        return sorted({*names, *self.registry.views(), *self.registry.sources()})

    def check(self, statement: CreateView) -> None:
        """Refuse a view that Spark would refuse; a view over a source without a mark can't be checked."""
        try:
            _Reading(self, self.cut() if self.lake.sources() else None).frame(
                statement.query, (statement.name,)
            )
        except (NoMark, SourceNotRun):
            return

    def _own(self, statement: Statement) -> SqlAnswer:
        done = register.carry_out(self.path, statement, self._moment, self._source)
        return SqlAnswer(line=done) if isinstance(done, str) else SqlAnswer(rows=done)

    def _query(self, sql: str) -> SqlAnswer:
        cut = self.cut() if self._has_marks() else None
        if cut is not None and self._at == LAST_EXACT:
            named = [f"{rawrows.source_quoted(s)}.{table}" for s, table in _Reading(self, cut).tables(sql)]
            cut = self.lake.at(exact=named, source=self._source)
        reading = _Reading(self, cut)
        rows = queries.collect(reading.frame(sql), reading.refusals)
        return SqlAnswer(rows=rows, places=reading.places())

    def _has_marks(self) -> bool:
        return self._at is not None or self._source is not None or bool(self.lake.sources())


Thing = RegisteredView | Name | str  # a view, a table, or a source by its name


class _Reading:
    """One query: it makes a temporary view in Spark for each name that the query uses, at one cut."""

    def __init__(self, session: SqlSession, cut: Cut | None) -> None:
        self._session = session
        self._cut = cut
        self._views = session.registry.views()
        self._sources = session.registry.sources()
        self._used = False
        self.refusals = queries.Refusals()

    def places(self) -> tuple[str, ...]:
        """The positions of the query; none if it reads nothing of the lake."""
        if self._cut is None or not self._used:
            return ()
        return tuple(f"{source} at {place.text_with_position}" for source, place in self._cut.places.items())

    def frame(self, sql: str, expanding: Expanding = ()) -> Any:
        """The query as a DataFrame; Spark starts only if every name can be read."""
        for thing in self._things(sql, expanding):
            if isinstance(thing, str):
                self._run_once(thing)
            else:
                assert self._cut is not None
                self._cut.standings.of(thing)
        self._session.expect()
        return self._plan(sql, None)

    def tables(self, sql: str) -> list[Name]:
        """The tables that the query reads, whether or not they are exact at the cut."""
        found: list[Name] = []
        for thing in self._things(sql, ()):
            if isinstance(thing, str):
                self._run_once(thing)
                assert self._cut is not None
                found += [(thing, table) for table in rawrows.mirrored_tables(self._cut, thing)]
            else:
                found.append(thing)
        return found

    def _things(self, sql: str, expanding: Expanding) -> Iterator[Name | str]:
        """Yield the tables and sources that the query reads, directly or by views; refuse unknown names."""
        unknown = []
        for mention in mentions_in(sql):
            meant = self._meaning(mention.parts)
            if meant is None:
                unknown.append(mention)
            elif not isinstance(meant, RegisteredView):
                yield meant
            elif meant.name in expanding:
                raise _circular(meant, expanding)
            else:
                yield from self._things(meant.text, (*expanding, meant.name))
        if unknown and self._session.alone and reads_plainly(sql):
            raise self._unknown_error(unknown)

    def _plan(self, sql: str, within: RegisteredView | None) -> Any:
        """The query, or that of the view `within`, as Spark analysed it."""
        chosen: dict[Mention, str] = {}
        unknown: list[Mention] = []
        for mention in mentions_in(sql):
            meant = self._meaning(mention.parts)
            if meant is None:
                unknown.append(mention)
            else:
                chosen[mention] = self._find_registered(meant, within)
        text = rewritten(sql, chosen)
        try:
            return queries.plan(self._session.spark, text.text)
        except queries.UnknownRelation:
            raise self._unknown_error(unknown) from None
        except queries.QueryRefused as refused:
            raise _refused_error(sql, text, refused) from None

    def _meaning(self, parts: Sequence[str]) -> Thing | None:
        """The thing that a name means; None if the lake has nothing of that name."""
        tables = self._tables(parts)
        bare = parts[0] if len(parts) == 1 else None
        view = self._views.get(bare) if bare else None
        source = self._source(bare, registered=True) if bare else None
        meant = [thing for thing in (view, source, *tables) if thing is not None]
        if len(meant) > 1 and not tables[1:]:
            raise _two_kinds(str(bare))
        if tables[1:]:
            raise ambiguous(".".join(map(quote_identifier, parts)), tables)
        found: Thing | None = meant[0] if meant else None
        return found or (self._source(bare, registered=False) if bare else None)

    def _find_registered(self, thing: Thing, within: RegisteredView | None) -> str:
        """Register the thing with Spark; return its name there."""
        self._used = True
        if isinstance(thing, RegisteredView):
            return self._make_view(f"view {thing.name}", self._plan(thing.text, thing))
        return self._raw(thing, within) if isinstance(thing, str) else self._table(thing)

    def _tables(self, parts: Sequence[str]) -> list[Name]:
        """The tables that the parts may mean: those that match exactly, else those that match in any case."""
        if self._cut is None or len(parts) > 3:
            return []
        names = self._cut.standings.list_tables()
        for fold in (str, str.lower):
            wanted = tuple(map(fold, parts))
            found = [
                (source, table)
                for source, table in names
                if tuple(map(fold, (source, table.schema, table.name)))[-len(parts) :] == wanted
            ]
            if found:
                return found
        return self._elsewhere(parts)

    def _elsewhere(self, parts: Sequence[str]) -> list[Name]:
        """The known table that is not in these marks: reading it raises the reason, or uses history."""
        assert self._cut is not None
        try:
            return [
                self._cut.standings.resolve(
                    ".".join(f'"{part.replace(chr(34), chr(34) * 2)}"' for part in parts)
                )
            ]
        except HeadraceError:
            return []

    def _source(self, name: str | None, *, registered: bool) -> str | None:
        if name is None:
            return None
        known = set(self._sources) if registered else set(self._cut.places if self._cut else ())
        return next((each for each in sorted(known) if each == name or each.lower() == name.lower()), None)

    def _table(self, name: Name) -> str:
        assert self._cut is not None
        source, table = name
        frame = self._cut.table(self._session.spark, f"{rawrows.source_quoted(source)}.{table}")
        return self._make_view(f"{source}.{table.schema}.{table.name}", frame)

    def _raw(self, source: str, view: RegisteredView | None) -> str:
        assert self._cut is not None
        relation = rawrows.RowsRelation(self._session.lake.store, self._cut, source, view, self.refusals)
        reader = "" if view is None else f" of view {view.name}"
        return self._make_view(f"source {source}{reader}", relation.frame(self._session.spark))

    def _run_once(self, source: str) -> None:
        if self._cut is None or source not in self._cut.places:
            raise SourceNotRun(
                "SQL_SOURCE_NOT_RUN",
                f'nothing of source "{source}" is in the lake yet',
                hint=f"headrace run --lake {self._session.path}",
            )

    def _make_view(self, name: str, frame: Any) -> str:
        frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
        return name

    def _unknown_error(self, mentions: Sequence[Mention]) -> Misconfigured:
        names = [".".join(mention.parts) for mention in mentions]
        known = [*self._views, *self._sources]
        if self._cut is not None:
            known += [str(table) for _, table in self._cut.standings.list_tables()]
        return Misconfigured(
            "LAKE_TABLE_UNKNOWN",
            "this lake has no table, view or source " + " or ".join(f'"{name}"' for name in names)
            if names
            else "the query names a table that is not there",
            detail=did_you_mean(names[0], known) if names else None,
            hint="SHOW TABLES lists the tables here, SHOW VIEWS and SHOW SOURCES the rest",
        )


def _refused_error(sql: str, text: RewrittenQuery, refused: queries.QueryRefused) -> Misconfigured:
    """Spark's refusal, with the place in the user's text."""
    if not refused.line:
        return Misconfigured("SQL_REFUSED", refused.what, hint="the code is Spark's own")
    lines = text.text.split("\n")
    at = text.original(sum(len(line) + 1 for line in lines[: refused.line - 1]) + refused.column - 1)
    if refused.syntax:
        return malformed_error(sql, min(at, len(sql)), refused.what)
    line = sql.count("\n", 0, at) + 1
    column = at - (sql.rfind("\n", 0, at) + 1) + 1
    return Misconfigured(
        "SQL_REFUSED", f"{refused.what}, at line {line}, column {column}", hint="the code is Spark's own"
    )


def _circular(view: RegisteredView, expanding: Expanding) -> Misconfigured:
    return Misconfigured(
        "SQL_VIEW_CIRCULAR",
        f'the view "{view.name}" is made of itself',
        detail=" → ".join([*expanding, view.name]),
        hint="create one of them anew: CREATE OR REPLACE VIEW",
    )


def _two_kinds(name: str) -> Misconfigured:
    return Misconfigured(
        "LAKE_NAME_AMBIGUOUS",
        f'"{name}" names more than one thing of this lake: a view, a source or a table',
        hint="write a table with its schema, or give the view another name",
    )
