"""The catalog of an export, and SQL catalogs: the rows of our tables, changed in one transaction.

The SQL catalogs of pyiceberg and of Iceberg's own JDBC catalog share their tables. A table is a row of
`iceberg_tables` that names its metadata file; a commit is an UPDATE of the row, if it still names the file
before. N such statements in one transaction move N tables at once. `rest` has the catalogs behind a server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import quote

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.failpoint import failpoint
from headrace.iceberg.settings import DATABASE, IcebergConfig
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore

if TYPE_CHECKING:
    from pyiceberg.catalog.sql import SqlCatalog

Json = Any
Identifier = tuple[str, str]  # a namespace, its levels joined by dots, and a table's name in it

OURS = "headrace.lake"  # a namespace's property: the id of the lake that made it
TAKEN = "a table there has the same name but for its case"


@dataclass(frozen=True, slots=True)
class Move:
    """A table's row that names another metadata file from now on; None: there is no row."""

    table: Identifier
    old: str | None
    new: str | None


class CatalogRows(Protocol):
    """A catalog, open for as long as one export takes."""

    @property
    def files(self) -> Mapping[str, Json]:
        """The metadata of tables by their addresses, where the catalog gave it."""

    @property
    def refusals(self) -> Mapping[Identifier, HeadraceError]:
        """The tables that it did not take in the last commit."""

    @property
    def registers(self) -> bool:
        """Tell whether it reads a new table's metadata from a file, and writes all later ones itself."""

    def locations(self, namespace: str) -> dict[Identifier, str]:
        """The addresses of all tables in a namespace and below it."""

    def owners(self, namespace: str) -> dict[str, str | None]:
        """The namespaces at and below this one, each with the id of the lake that made it."""

    def commit(
        self, moves: Sequence[Move], spaces: Mapping[str, Mapping[str, str]], files: Mapping[str, Json]
    ) -> list[Identifier]:
        """Carry out all moves, and make these namespaces; `files` is the metadata at the new addresses.

        Return the tables that another program moved meanwhile; in an SQL catalog nothing has changed then.
        """

    def anything(self) -> bool:
        """Tell whether the catalog has tables or namespaces, of whatever name."""

    def remove_namespaces(self, spaces: Sequence[str]) -> None:
        """Remove namespaces that have no table."""


@dataclass(frozen=True, slots=True)
class SqlRows:
    """An SQL catalog, open for as long as one export takes."""

    _catalog: SqlCatalog
    files: Mapping[str, Json] = field(default_factory=dict)
    refusals: dict[Identifier, HeadraceError] = field(default_factory=dict)  # tables that it does not take
    registers: bool = False

    def locations(self, namespace: str) -> dict[Identifier, str]:
        """The metadata files of all tables in a namespace and below it."""
        tables = _tables()
        within = tables.table_namespace.startswith(f"{namespace}.", autoescape=True)
        rows = _select(tables.table_namespace, tables.table_name, tables.metadata_location).where(
            tables.catalog_name == self._catalog.name, (tables.table_namespace == namespace) | within
        )
        with self._catalog.engine.connect() as connection:
            return {(space, name): at or "" for space, name, at in connection.execute(rows)}

    def owners(self, namespace: str) -> dict[str, str | None]:
        """The namespaces at and below this one, each with the id of the lake that made it."""
        spaces = _namespaces()
        within = spaces.namespace.startswith(f"{namespace}.", autoescape=True)
        rows = _select(spaces.namespace, spaces.property_key, spaces.property_value).where(
            spaces.catalog_name == self._catalog.name, (spaces.namespace == namespace) | within
        )
        found: dict[str, str | None] = {}
        with self._catalog.engine.connect() as connection:
            for space, key, value in connection.execute(rows):
                found.setdefault(space, None)
                if key == OURS:
                    found[space] = value
        return found

    def commit(
        self, moves: Sequence[Move], spaces: Mapping[str, Mapping[str, str]], files: Mapping[str, Json]
    ) -> list[Identifier]:
        """Carry out all moves in one transaction, and make these namespaces.

        Return a table that another program moved meanwhile; if there is one, nothing was changed.
        """
        with self._catalog.engine.connect() as connection, connection.begin() as transaction:
            for move in moves:
                if not self._carry_out(connection, move):
                    transaction.rollback()
                    return [move.table]
            for space, properties in spaces.items():
                self._make(connection, space, properties)
            failpoint("iceberg.commit.before")
        return []

    def anything(self) -> bool:
        """Tell whether the catalog has tables or namespaces, of whatever name."""
        with self._catalog.engine.connect() as connection:
            columns = (_tables().table_name, _namespaces().namespace)
            return any(connection.execute(_select(each).limit(1)).first() for each in columns)

    def remove_namespaces(self, spaces: Sequence[str]) -> None:
        """Remove namespaces that have no table."""
        from sqlalchemy import delete

        names = _namespaces()
        with self._catalog.engine.begin() as connection:
            for space in spaces:
                connection.execute(
                    delete(names).where(names.catalog_name == self._catalog.name, names.namespace == space)
                )

    def _carry_out(self, connection: Any, move: Move) -> bool:
        from sqlalchemy import delete, insert, update
        from sqlalchemy.exc import IntegrityError

        tables = _tables()
        space, name = move.table
        here = (
            (tables.catalog_name == self._catalog.name)
            & (tables.table_namespace == space)
            & (tables.table_name == name)
        )
        if move.old is None:
            names = _select(tables.table_namespace, tables.table_name).where(here)
            there = {tuple(row) for row in connection.execute(names)}
            if there and move.table not in there:
                self.refusals[move.table] = name_error(".".join(move.table), TAKEN)
                return True
            row = {"catalog_name": self._catalog.name, "table_namespace": space, "table_name": name}
            try:
                connection.execute(insert(tables).values(**row, metadata_location=move.new))
            except IntegrityError:
                return False
            return True
        unmoved = here & (tables.metadata_location == move.old)
        if move.new is None:
            return bool(connection.execute(delete(tables).where(unmoved)).rowcount == 1)
        values = {"metadata_location": move.new, "previous_metadata_location": move.old}
        return bool(connection.execute(update(tables).where(unmoved).values(**values)).rowcount == 1)

    def _make(self, connection: Any, space: str, properties: Mapping[str, str]) -> None:
        from sqlalchemy import insert

        names = _namespaces()
        here = (names.catalog_name == self._catalog.name) & (names.namespace == space)
        if connection.execute(_select(names.namespace).where(here)).first():
            return  # its name is spelled otherwise there
        for key, value in {"exists": "true", **properties}.items():
            row = {"namespace": space, "property_key": key, "property_value": value}
            connection.execute(insert(names).values(catalog_name=self._catalog.name, **row))


def name_error(name: str, why: str) -> Misconfigured:
    """The error of a table that a catalog has no place for."""
    return Misconfigured(
        "ICEBERG_NAME",
        f'the Iceberg catalog cannot hold a table of the name "{name}"',
        detail=why,
        hint="read it as Delta, or rename it at the source; all other tables are exported",
    )


def _select(*columns: Any) -> Any:
    from sqlalchemy import select

    return select(*columns)


def _tables() -> Any:
    from pyiceberg.catalog.sql import IcebergTables

    return IcebergTables


def _namespaces() -> Any:
    from pyiceberg.catalog.sql import IcebergNamespaceProperties

    return IcebergNamespaceProperties


def properties_of(config: IcebergConfig, lake: str) -> dict[str, str]:
    """The properties of an SQL catalog: those that were given, else those of the lake's own one."""
    path = quote(f"{lake}/{DATABASE}")
    return dict(config.properties) or {"type": "sql", "uri": f"sqlite:///file:{path}?uri=true"}


def require() -> None:
    """Refuse an export where pyiceberg is not installed; nothing is loaded."""
    if find_spec("pyiceberg") is None or find_spec("sqlalchemy") is None:
        raise Misconfigured(
            "ICEBERG_EXTRA",
            "marks cannot be exported: pyiceberg is not installed here",
            hint="pip install 'headrace[iceberg]'",
        )


def refuse_afar(store: Store) -> None:
    """Refuse an export of a lake in a bucket."""
    if not isinstance(store, LocalStore):
        raise Misconfigured(
            "ICEBERG_LAKE_AFAR",
            "only a lake in a directory can be exported to Iceberg so far",
            hint="read a lake in a bucket as Delta: docs/engines.md says how",
        )
