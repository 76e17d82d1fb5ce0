"""The way to a catalog: which kind it is, with which credentials, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from headrace.core.errors import Misconfigured, Transient
from headrace.iceberg.catalog import CatalogRows, SqlRows, properties_of, require
from headrace.iceberg.settings import DEFAULT_CATALOG, IcebergConfig

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.sql import SqlCatalog


@contextmanager
def open_catalog(config: IcebergConfig, lake: str) -> Iterator[CatalogRows]:
    """The catalog of an export, while the body runs."""
    require()
    from pyiceberg.catalog.sql import SqlCatalog
    from requests.exceptions import RequestException
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

    try:
        catalog = _open(config, lake)
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise Misconfigured(
            "ICEBERG_CATALOG_URI",
            "the address of the Iceberg catalog names no database that can be opened",
            detail=type(error).__name__,
            hint="give one such as sqlite:////srv/catalog.db, and install the driver of its database",
        ) from None
    except (SQLAlchemyError, RequestException) as error:
        raise _away(error) from None
    try:
        if isinstance(catalog, SqlCatalog):
            yield SqlRows(catalog)
        else:
            with _server_errors():
                from headrace.iceberg.rest import RestRows

                yield RestRows(catalog)
    except (SQLAlchemyError, RequestException) as error:
        raise _away(error) from None
    finally:
        catalog.close()


def _open(config: IcebergConfig, lake: str) -> SqlCatalog | RestCatalog:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.catalog.sql import SqlCatalog

    name, properties = config.catalog or DEFAULT_CATALOG, properties_of(config, lake)
    if properties.get("type") == "rest":
        with _server_errors():
            return RestCatalog(name, **properties)
    if not config.catalog or config.properties:
        return SqlCatalog(name, **properties)
    try:
        with _server_errors():
            found = load_catalog(name)
    except ValueError:
        raise Misconfigured(
            "ICEBERG_CATALOG_UNKNOWN",
            f'pyiceberg knows no catalog "{name}"',
            hint="name one of ~/.pyiceberg.yaml, or write its type and uri into [iceberg.catalog]",
        ) from None
    if not isinstance(found, SqlCatalog | RestCatalog):
        raise Misconfigured(
            "ICEBERG_CATALOG_KIND",
            f'the Iceberg catalog "{name}" is neither an SQL nor a REST catalog',
            detail=type(found).__name__,
            hint='choose one: type = "sql" or "rest", and uri = "..." in [iceberg.catalog]',
        )
    return found


@contextmanager
def _server_errors() -> Iterator[None]:
    """Translate what the server of a REST catalog answers."""
    from pyiceberg.exceptions import ForbiddenError, OAuthError, RESTError, UnauthorizedError

    try:
        yield
    except (UnauthorizedError, ForbiddenError, OAuthError) as error:
        raise Misconfigured(
            "ICEBERG_CATALOG_REFUSES",
            "the server of the Iceberg catalog refuses our credentials",
            detail=type(error).__name__,
            hint="check token or credential in [iceberg.catalog] or ~/.pyiceberg.yaml, and our rights there",
        ) from None
    except RESTError as error:
        raise _away(error) from None


def _away(error: Exception) -> Transient:
    response = getattr(error, "response", None)
    return Transient(
        "ICEBERG_CATALOG_AWAY",
        "the Iceberg catalog cannot be reached, or refuses us",
        detail=type(error).__name__ if response is None else f"HTTP {response.status_code}",
        hint="look at the catalog and our rights there; the export goes on by itself, with one snapshot",
    )


def given_elsewhere(name: str) -> dict[str, str]:
    """The properties that `~/.pyiceberg.yaml` or variables give to a catalog of this name."""
    require()
    from pyiceberg.utils.config import Config

    found = Config().get_catalog_config(name or DEFAULT_CATALOG) or {}
    return {key: value for key, value in found.items() if isinstance(value, str)}
