"""Our own statements: register sources and views in the lake, list them, drop them.

CREATE SOURCE opens no connection: it registers the source, and `headrace run --lake DIR` mirrors it. One
stream serves all its tables, however many views read it. A connection with a password is refused, since
everybody who can read the lake could read the password.

CREATE VIEWS FROM SOURCE chooses the source's tables. Each is mirrored with its types, so the view is the
table itself. If the source is mirrored already, its owner is asked to add further tables
(`pipeline.commands.ask`). SHOW CREATE VIEW prints the view as a query over the source's rows. DROP SOURCE
also removes the objects that a run made upstream; mirrored tables stay readable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pyarrow as pa

from headrace.core.errors import Misconfigured
from headrace.core.names import TableName, quote_identifier, split_identifiers
from headrace.core.schema import TableSchema
from headrace.lake.format import formatfile
from headrace.lake.format.registry import RegisteredSource, RegisteredView, Registry
from headrace.lake.read.cut import Cut
from headrace.lake.read.intervals import Name, ambiguous, matches
from headrace.lake.read.lake import Lake
from headrace.lake.store.open import open_store
from headrace.pipeline.commands import ask, drop_source
from headrace.pipeline.state import last_config
from headrace.pipeline.state.records import SourceRecord
from headrace.sources.contract.decoder import Decoder
from headrace.sources.registry import by_address, declaration, kind_of, kinds
from headrace.sql import rawrows
from headrace.sql.relations import mentions_in
from headrace.sql.statements import (
    CreateSource,
    CreateView,
    CreateViews,
    DropStatement,
    Show,
    Statement,
    forms_of_create_source,
)

At = int | str | datetime | None


def carry_out(path: str, statement: Statement, at: At, source: str | None) -> Any:
    """Carry out a statement; return a line about it, or rows."""
    if isinstance(statement, CreateSource):
        formatfile.create_lake(open_store(path))
        return _create_source(Lake(path), statement)
    lake = Lake(path)
    if isinstance(statement, CreateViews):
        return _create_views(lake, path, statement)
    if isinstance(statement, CreateView):
        return _create_view(lake, statement, at, source)
    if isinstance(statement, DropStatement):
        return (
            _drop_source(lake, path, statement) if statement.what == "SOURCE" else _drop_view(lake, statement)
        )
    assert isinstance(statement, Show)
    return _ShowAnswers(lake, path, at, source).rows(statement)


def _create_source(lake: Lake, statement: CreateSource) -> str:
    source, declared = by_address(statement.connection), declaration(kind_of(statement.connection))
    if declared.kind != statement.kind:
        raise Misconfigured(
            "SQL_SOURCE_KIND",
            f"the connection is one to {declared.title}, and the statement says FROM "
            f"{declaration(statement.kind).keyword}",
            hint=f"write FROM {declared.keyword}, or the connection of another server",
        )
    address = source.address(statement.connection)
    if address.without_secrets() != address.text:
        raise Misconfigured(
            "SQL_PASSWORD",
            "a connection with a password is not registered: everybody who reads the lake would read it",
            hint=f"leave it out, and give it to the run: {declared.password}",
        )
    registry = Registry(lake.store)
    if statement.name in registry.views():
        raise _taken_error(statement.name)
    made = registry.add(
        RegisteredSource(
            name=statement.name,
            kind=statement.kind,
            connection=address.without_secrets(),
            options=statement.options,
            is_materialized=statement.is_materialized,
        )
    )
    if not made and not statement.lenient:
        raise _taken_error(statement.name)
    return f"source {quote_identifier(statement.name)}" if made else "it is there already"


def _create_views(lake: Lake, path: str, statement: CreateViews) -> str:
    registry = Registry(lake.store)
    source = _find(registry, statement.source)
    chosen = tuple(dict.fromkeys((*(source.views or ()), *statement.tables))) if statement.tables else ()
    if source.name in last_config.sources(path):
        _add_unmirrored(lake, path, source.name, statement.tables)
    registry.replace(replace(source, views=chosen or ("*.*",), is_materialized=statement.is_materialized))
    return "all tables of the source" if not chosen else f"views {', '.join(statement.tables)}"


def _add_unmirrored(lake: Lake, path: str, source: str, tables: tuple[str, ...]) -> None:
    """Add tables to a source that was run, as `headrace tables add` does."""
    names = lake.cut(None, source).standings.list_tables()
    missing = [_as_pattern(text) for text in tables if not matches(text, names)]
    if missing:
        ask.ask(path, "tables.add", {"tables": missing}, source=source)


def _as_pattern(text: str) -> str:
    """The pattern that matches this name alone."""
    return ".".join('"' + part.replace('"', '""') + '"' for part in split_identifiers(text))


def _create_view(lake: Lake, statement: CreateView, at: At, source: str | None) -> str:
    registry = Registry(lake.store)
    if statement.name in registry.sources():
        raise _taken_error(statement.name)
    named = {mention.parts[0].lower() for mention in mentions_in(statement.query) if len(mention.parts) == 1}
    columns = {}
    if lake.sources():
        cut = lake.cut(at, source)
        columns = {each: rawrows.columns_of(cut, each) for each in cut.places if each.lower() in named}
    view = RegisteredView(statement.name, statement.query, statement.is_materialized, columns)
    if statement.replace:
        registry.replace(view)
    elif not registry.add(view):
        raise _taken_error(statement.name)
    waiting = [each for each in registry.sources() if each.lower() in named and not columns.get(each)]
    later = [f'; once source "{each}" is mirrored, write it again to read row_data' for each in waiting]
    return "".join([f"view {quote_identifier(statement.name)}", *later])


def _drop_source(lake: Lake, path: str, statement: DropStatement) -> str:
    registry = Registry(lake.store)
    if statement.name not in registry.sources() and statement.lenient:
        return "it is not there"
    source = _find(registry, statement.name)
    lines = []
    if source.name in {*last_config.sources(path), *last_config.recall(lake.store)}:
        lines = list(drop_source.drop(path, only=source.name))
    registry.remove(source)
    return "\n".join(
        [*lines, f"dropped source {quote_identifier(source.name)}; what is mirrored stays readable"]
    )


def _drop_view(lake: Lake, statement: DropStatement) -> str:
    registry = Registry(lake.store)
    view = registry.views().get(statement.name)
    if view is None and statement.lenient:
        return "it is not there"
    if view is None:
        raise Misconfigured(
            "SQL_VIEW_UNKNOWN",
            f'nobody has written a view "{statement.name}" in this lake',
            hint="SHOW VIEWS lists them; a view that CREATE VIEWS made goes with its source",
        )
    registry.remove(view)
    return f"dropped view {quote_identifier(view.name)}"


def _find(registry: Registry, name: str) -> RegisteredSource:
    sources = registry.sources()
    if name not in sources:
        raise Misconfigured(
            "SQL_SOURCE_UNKNOWN",
            f'no source "{name}" is registered in this lake',
            detail=", ".join(sorted(sources)) or "none is",
            hint=forms_of_create_source(),
        )
    return sources[name]


def _taken_error(name: str) -> Misconfigured:
    return Misconfigured(
        "SQL_NAME_TAKEN",
        f'"{name}" is a source or a view of this lake already',
        hint="choose another name, or drop the other first",
    )


class _ShowAnswers:
    """The answers to SHOW."""

    def __init__(self, lake: Lake, path: str, at: At, source: str | None) -> None:
        self._lake = lake
        self._path = path
        self._at = at
        self._only = source
        self._registry = Registry(lake.store)

    def rows(self, statement: Show) -> pa.Table:
        shown = {"SOURCES": self._sources, "VIEWS": self._views, "TABLES": self._tables}
        if statement.name is None:
            return shown[statement.what]()
        return self._statement_of(statement.what, statement.name)

    def _sources(self) -> pa.Table:
        registered, known = self._registry.sources(), last_config.sources(self._path)
        rows = []
        for name in sorted({*registered, *known}):
            source, run = registered.get(name), known.get(name)
            rows.append(
                {
                    "name": name,
                    "kind": run.kind if run else source.kind if source else None,
                    "connection": run.address if run else source.connection if source else None,
                    **_options(source, run),
                    "mirrored": run is not None,
                }
            )
        named = {option.name: pa.string() for kind in kinds() for option in declaration(kind).in_sql}
        columns = {"name": pa.string(), "kind": pa.string(), "connection": pa.string(), **named}
        return _rows(rows, **columns, mirrored=pa.bool_())

    def _views(self) -> pa.Table:
        rows = [
            {"name": view.name, "kind": "written", "source": None} for view in self._registry.views().values()
        ]
        for source, text in self._generated_views():
            rows.append({"name": text, "kind": "generated", "source": source})
        return _rows(rows, name=pa.string(), kind=pa.string(), source=pa.string())

    def _generated_views(self) -> list[tuple[str, str]]:
        """The views of CREATE VIEWS: a source's tables if it has run, else the chosen names."""
        found = []
        names = self._names()
        for source in self._registry.sources().values():
            if source.views is None:
                continue
            mirrored = [table for each, table in names if each == source.name]
            if mirrored:
                found += [(source.name, str(table)) for table in mirrored if _is_chosen(source, table)]
            else:
                found += [(source.name, text) for text in source.views if text != "*.*"]
        return found

    def _tables(self) -> pa.Table:
        rows = [
            {"source": source, "schema": table.schema, "table": table.name} for source, table in self._names()
        ]
        return _rows(rows, source=pa.string(), schema=pa.string(), table=pa.string())

    def _names(self) -> list[Name]:
        return self._cut().standings.names() if self._lake.sources() else []

    def _cut(self) -> Cut:
        return self._lake.cut(self._at, self._only)

    def _statement_of(self, what: str, name: str) -> pa.Table:
        if what == "SOURCE":
            source = _find(self._registry, name)
            known = declaration(source.kind)
            named = [(option.name.upper(), source.options[option.name]) for option in known.in_sql]
            text = f"CREATE SOURCE {quote_identifier(name)} FROM {known.keyword}" + "".join(
                f" {word} {_text(value)}" for word, value in (("CONNECTION", source.connection), *named)
            )
        else:
            view = self._registry.views().get(name)
            text = self._definition(name) if view is None else _as_written(view)
        return _rows([{"statement": text}], statement=pa.string())

    def _definition(self, text: str) -> str:
        """The view of a mirrored table, as a query over its source's rows."""
        cut = self._cut()
        name = _meant_table(text, cut.standings.names())
        known = rawrows.read_records(cut, name)
        return _view_statement(name[1].name, name[0], known.table.number, known.table.schema, known.decoder)


def _meant_table(text: str, names: list[Name]) -> Name:
    """The table of a name; the whole name may stand in one pair of quotes."""
    found = matches(quote_identifier(text), names) or matches(text, names)
    if len(found) == 1:
        return found[0]
    if found:
        raise ambiguous(text, found)
    raise Misconfigured(
        "SQL_VIEW_UNKNOWN", f'this lake has no view "{text}"', hint="SHOW VIEWS lists the views"
    )


def _is_chosen(source: RegisteredSource, table: TableName) -> bool:
    parts = (table.schema, table.name)
    views = source.views or ()
    return any(
        text == "*.*" or parts[-len(split_identifiers(text)) :] == split_identifiers(text) for text in views
    )


def _as_written(view: RegisteredView) -> str:
    kind = "MATERIALIZED VIEW" if view.is_materialized else "VIEW"
    return f"CREATE {kind} {quote_identifier(view.name)} AS {view.text}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _rows(rows: Sequence[Mapping[str, object]], **columns: pa.DataType) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items())))


def _options(source: RegisteredSource | None, run: SourceRecord | None) -> Mapping[str, str]:
    """The options that were registered; once the source ran, with the names of its objects upstream."""
    registered = {} if source is None else source.options
    return registered if run is None else {**registered, **run.facts.objects}


def _view_statement(view: str, source: str, oid: int, schema: TableSchema, decoder: Decoder) -> str:
    """The statement that makes a view, as SQL that anyone can run: casts over the source's rows of text.

        CREATE VIEW "orders" AS
        SELECT
          CAST(row_data[0] AS BIGINT) AS `id`,
          row_data[1] AS `code`
        FROM "shop" WHERE oid = 16385

    Each cast does in Spark's functions what the decoder of the column's form does. A value that the lake's
    type can't hold is NULL in both. Headrace itself does not run it: the view's table is mirrored with types.
    """
    columns = [
        f"  {decoder.cast(column, f'row_data[{i}]')} AS `{column.name.replace('`', '``')}`"
        for i, column in enumerate(schema.columns)
    ]
    return (
        f"CREATE VIEW {_quote(view)} AS\nSELECT\n"
        + ",\n".join(columns)
        + f"\nFROM {_quote(source)} WHERE oid = {oid}"
    )


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if quote_identifier(name) == name else quote_identifier(name)
