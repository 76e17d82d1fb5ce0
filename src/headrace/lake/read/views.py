"""Statements by which another engine has all tables of a cut as views, each pinned to its version.

    spark     CREATE OR REPLACE TEMPORARY VIEW `public.orders` USING headrace OPTIONS (...)
    delta     CREATE OR REPLACE TEMPORARY VIEW `public.orders` AS SELECT ... FROM delta.`...` VERSION AS OF 7
    duckdb    CREATE OR REPLACE VIEW "public"."orders" AS SELECT ... FROM delta_scan(..., version = 7)
    polars    tables["public.orders"] = pl.scan_delta(..., version=7)
    trino     CREATE OR REPLACE VIEW "public"."orders" ... FOR VERSION AS OF 7
    databricks  CREATE OR REPLACE VIEW `public`.`orders` ... VERSION AS OF 7

An engine is a row of `ENGINES`; those of `UNPINNED` can read a lake, and not at one mark. Views are called as
in SQL over a lake (decision 0015): `schema.table`, the source before it where the cut is through several, and
the bare name where one schema has it. Columns come out under the user's names, whatever Delta forbids in
them. Only a cut at marks has versions to pin.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from headrace.core.errors import Misconfigured
from headrace.core.near import did_you_mean
from headrace.lake.format import layout
from headrace.lake.read.cut import Cut, between_error, print_name
from headrace.lake.read.intervals import Name
from headrace.lake.read.travel import quote

_PLAIN_PATH = re.compile(r"[A-Za-z0-9/:._\-]*")


@dataclass(frozen=True, slots=True)
class TableView:
    """A table of a cut, as statements need it."""

    lake: str
    source: str
    name: str  # of the table in the lake, quoted where need be
    schema: str  # the views' schema: the table's, the source before it where there are several
    table: str
    bare: bool  # no other table of the cut is called so, and no view
    url: str
    version: int
    epoch: int
    columns: tuple[str, ...]

    @property
    def full(self) -> str:
        """The view's name in an engine whose views have no schema."""
        return f"{self.schema}.{self.table}"

    @property
    def spelled_otherwise(self) -> dict[str, str]:
        """The columns that Delta knows under another name, by that name."""
        return {layout.lake_column(name): name for name in self.columns if layout.lake_column(name) != name}


@dataclass(frozen=True, slots=True)
class ViewEngine:
    """The statements before all others, and those of a table; the first line says what our tests do."""

    begin: tuple[str, ...]
    table: Callable[[TableView], Iterator[str]]
    any_path: bool = (
        True  # it opens a lake whose path has other characters than letters, digits and these: /._-
    )
    minds_case: bool = False  # names that differ in case alone are two


def statements(cut: Cut, engine: str) -> list[str]:
    """The statements in their order; raises where the cut is between two marks."""
    chosen = ENGINES[engine]
    if not chosen.any_path and not _PLAIN_PATH.fullmatch(cut.store.url):
        raise Misconfigured(
            "VIEWS_PATH",
            f"{engine} cannot open Delta tables at the path of this lake",
            detail="it looks for the files under a path in which special characters are percent-encoded",
            hint=f"Lake({cut.store.url!r}).at().polars(name) reads it; or keep the lake at another path",
        )
    for place in cut.places.values():
        if place.mark is None:
            raise between_error(f"{place.text} is between two marks, where tables have no versions")
    views = list(_views(cut))
    _refuse_alike(cut, engine, views)
    found = [line for view in views for line in chosen.table(view)]
    return [*chosen.begin, *dict.fromkeys(found)]


def engine_named(name: str) -> str:
    """The name, if it is that of an engine."""
    if name in UNPINNED:
        raise Misconfigured(
            "VIEWS_ENGINE_UNPINNED",
            f"{name} cannot read all tables of a lake at one mark",
            detail=UNPINNED[name],
            hint=f"read them in another engine: --engine {'|'.join(ENGINES)}",
        )
    if name not in ENGINES:
        raise Misconfigured(
            "VIEWS_ENGINE_UNKNOWN",
            f'there are no statements for an engine "{name}"',
            detail=did_you_mean(name, ENGINES),
            hint=f"--engine {'|'.join(ENGINES)}",
        )
    return name


def _refuse_alike(cut: Cut, engine: str, views: Sequence[TableView]) -> None:
    """Refuse two tables of one view: the later one would be read under the name of both."""
    known: dict[str, TableView] = {}
    for view in views:
        called = view.full if ENGINES[engine].minds_case else view.full.lower()
        other = known.setdefault(called, view)
        if other is not view:
            raise Misconfigured(
                "VIEWS_NAMES_ALIKE",
                f'{engine} takes "{other.full}" and "{view.full}" for one name',
                detail=f"they are the tables {other.name} and {view.name}",
                hint=f"Lake({cut.store.url!r}).at().polars(name) reads each of them",
            )


def _views(cut: Cut) -> Iterator[TableView]:
    names = cut.standings.list_tables()
    called = Counter(table.name.lower() for _, table in names)
    called.update(f"{_schema(cut, full)}.{full[1].name}".lower() for full in names)
    for full in names:
        yield _view(cut, full, bare=called[full[1].name.lower()] == 1)


def _schema(cut: Cut, full: Name) -> str:
    source, table = full
    return table.schema if len(cut.places) == 1 else f"{source}.{table.schema}"


def _view(cut: Cut, full: Name, *, bare: bool) -> TableView:
    source, table = full
    name = print_name(cut, full)
    return TableView(
        lake=cut.store.url,
        source=source,
        name=str(table),
        schema=_schema(cut, full),
        table=table.name,
        bare=bare,
        url=cut.url(name),
        version=cut.version(name),
        epoch=cut.marks[source].epoch,
        columns=tuple(cut.schema(name).names),
    )


def _spark(view: TableView) -> Iterator[str]:
    options = {"lake": view.lake, "table": view.name, "source": view.source, "epoch": str(view.epoch)}
    told = ", ".join(f"`{name}` {_spark_text(value)}" for name, value in options.items())
    full = quote(view.full)
    yield f"CREATE OR REPLACE TEMPORARY VIEW {full} USING headrace OPTIONS ({told});"
    if view.bare:
        yield f"CREATE OR REPLACE TEMPORARY VIEW {quote(view.table)} AS SELECT * FROM {full};"


def _spark_text(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _duckdb(view: TableView) -> Iterator[str]:
    columns = ", ".join(_renaming(name) for name in view.columns)
    place = view.url.replace("'", "''")
    full = f"{_identifier(view.schema)}.{_identifier(view.table)}"
    yield f"CREATE SCHEMA IF NOT EXISTS {_identifier(view.schema)};"
    scan = f"delta_scan('{place}', version = {view.version})"
    yield f"CREATE OR REPLACE VIEW {full} AS SELECT {columns} FROM {scan};"
    if view.bare and view.schema.lower() != "main":  # there the bare name is this very view
        yield f"CREATE OR REPLACE VIEW {_identifier(view.table)} AS SELECT * FROM {full};"


def _renaming(name: str) -> str:
    spelled = layout.lake_column(name)
    return _identifier(name) if spelled == name else f"{_identifier(spelled)} AS {_identifier(name)}"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _polars(view: TableView) -> Iterator[str]:
    scan = f"pl.scan_delta({view.url!r}, version={view.version})"
    if view.spelled_otherwise:
        scan += f".rename({view.spelled_otherwise!r})"
    yield f"tables[{view.full!r}] = {scan}"
    if view.bare:
        yield f"tables[{view.table!r}] = tables[{view.full!r}]"


def _trino(view: TableView) -> Iterator[str]:
    place = view.url if "://" in view.url else f"file://{view.url}"
    schema, table = _identifier(view.schema), _identifier(view.table)
    arguments = ", ".join(_text(each) for each in (view.schema, view.table, place))
    yield f"-- once: CREATE SCHEMA IF NOT EXISTS delta.{schema};"
    yield f"-- once: CALL delta.system.register_table({arguments});"
    columns = ", ".join(_renaming(name) for name in view.columns)
    yield f"CREATE SCHEMA IF NOT EXISTS {schema};"
    yield (
        f"CREATE OR REPLACE VIEW {schema}.{table} SECURITY INVOKER AS "
        f"SELECT {columns} FROM delta.{schema}.{table} FOR VERSION AS OF {view.version};"
    )


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _delta(view: TableView) -> Iterator[str]:
    full = quote(view.full)
    yield f"CREATE OR REPLACE TEMPORARY VIEW {full} AS {_select_version(view)};"
    if view.bare:
        yield f"CREATE OR REPLACE TEMPORARY VIEW {quote(view.table)} AS SELECT * FROM {full};"


def _databricks(view: TableView) -> Iterator[str]:
    schema = quote(view.schema)
    yield f"CREATE SCHEMA IF NOT EXISTS {schema};"
    yield f"CREATE OR REPLACE VIEW {schema}.{quote(view.table)} AS {_select_version(view)};"


def _select_version(view: TableView) -> str:
    """Read the table at its version, in Spark's SQL with Delta's connector."""
    renamed = view.spelled_otherwise
    columns = ", ".join(
        quote(each) if each not in renamed else f"{quote(each)} AS {quote(renamed[each])}"
        for each in map(layout.lake_column, view.columns)
    )
    return f"SELECT {columns} FROM delta.{quote(view.url)} VERSION AS OF {view.version}"


_RUN = "run in headrace's own tests"
_TRINO = (
    f"-- {_RUN}",
    '-- "delta" is a catalog of the connector delta_lake; run USE CATALOG.SCHEMA of one that holds views',
    '-- Trino refuses a table with deleted rows; its source needs merge = "rewrite": docs/engines.md',
)
_CONNECTOR = "-- needs Delta's SQL extension and catalog: docs/read.md"
_EXTENSION = (
    "-- needs INSTALL delta; LOAD delta; and for a bucket CREATE SECRET (TYPE s3, PROVIDER credential_chain);"
    " for gs:// TYPE gcs with KEY_ID and SECRET, for abfss:// TYPE azure with ACCOUNT_NAME"
)
_ELSEWHERE = f"-- {_RUN} on Spark with Delta's connector, not on Databricks"
ENGINES: Mapping[str, ViewEngine] = {
    "spark": ViewEngine((f"-- {_RUN}",), _spark),
    "delta": ViewEngine((f"-- {_RUN}", _CONNECTOR), _delta),
    "duckdb": ViewEngine((f"-- {_RUN}", _EXTENSION), _duckdb),
    "polars": ViewEngine(
        (f"# {_RUN}", "import polars as pl", "tables = {}"), _polars, any_path=False, minds_case=True
    ),
    "trino": ViewEngine(_TRINO, _trino),
    "databricks": ViewEngine((_ELSEWHERE,), _databricks),
}
UNPINNED: Mapping[str, str] = {
    "snowflake": "it reads the newest version of a Delta table alone",
    "athena": "it reads the newest version of a Delta table alone",
    "ducklake": "headrace makes no DuckLake catalog; DuckDB itself reads the lake",
}
