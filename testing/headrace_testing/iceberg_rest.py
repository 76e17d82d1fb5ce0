"""A server of Iceberg's REST catalog, for tests: HTTP on loopback, over an SQLite catalog of pyiceberg.

Written from the specification of the REST catalog. The server itself applies the updates of a commit to a
table's metadata, checks its requirements, writes the next metadata file and moves the table's row: it shares
no code with headrace's export.

    with serve(folder) as server:
        server.uri

Beside it stands the server of Apache Iceberg's own tests, which Maven fetches once a machine (`jars`):

    with serve_apache(folder) as server:
        server.restart()  # as after a kill
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote_plus, urlsplit
from urllib.request import urlopen

from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import CommitTableRequest, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import update_table_metadata
from sqlalchemy import update
from sqlalchemy.orm import Session

from headrace.spark.java import find_java
from headrace_testing.jars import APACHE_REST, locate_all, missing
from headrace_testing.ports import free_port

Json = Any
LEVELS = "\x1f"  # between the levels of a namespace in a path

ENDPOINTS = (
    "GET /v1/{prefix}/namespaces",
    "POST /v1/{prefix}/namespaces",
    "GET /v1/{prefix}/namespaces/{namespace}",
    "DELETE /v1/{prefix}/namespaces/{namespace}",
    "GET /v1/{prefix}/namespaces/{namespace}/tables",
    "GET /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "DELETE /v1/{prefix}/namespaces/{namespace}/tables/{table}",
    "POST /v1/{prefix}/namespaces/{namespace}/register",
)
TRANSACTIONS = "POST /v1/{prefix}/transactions/commit"

_STATUS: Mapping[type[Exception], int] = {
    NoSuchNamespaceError: 404,
    NoSuchTableError: 404,
    NamespaceAlreadyExistsError: 409,
    TableAlreadyExistsError: 409,
    NamespaceNotEmptyError: 409,
    CommitFailedException: 409,
}


class Refusal(Exception):
    """An answer that is no success."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class RestServer:
    """The catalog behind the server; requests are carried out one at a time."""

    catalog: SqlCatalog
    has_transactions: bool = True
    token: str | None = None  # that a request must bear
    is_away: bool = False  # answer 503 to all
    may_write: bool = True  # else answer 403 to what changes anything
    refused: dict[str, int] = field(default_factory=dict)  # answers to who changes a table of this name
    hidden: set[str] = field(default_factory=set)  # tables that nobody may load: 403
    folds: bool = False  # take all names in lower case
    longest: int = 200  # characters of a table's name
    requests: list[str] = field(default_factory=list)  # method and path of each
    before_commit: Callable[[int], None] = lambda number: None  # with the number of the table in its request
    uri: str = ""
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def answer(self, method: str, path: str, query: Mapping[str, str], body: Json) -> Json:
        """Carry out a request; the body of the answer."""
        with self._lock:
            if self.folds:
                path, query = path.lower(), {name: value.lower() for name, value in query.items()}
                _fold(body or {})
            match [method, *path.split("/")]:
                case ["GET", "config"]:
                    endpoints = [*ENDPOINTS, *([TRANSACTIONS] if self.has_transactions else [])]
                    return {"defaults": {}, "overrides": {}, "endpoints": endpoints}
                case ["GET", "namespaces"]:
                    said = query.get("parent")  # decoded once already
                    parent = tuple(said.split(LEVELS)) if said else ()
                    return {"namespaces": [list(each) for each in self._children(parent)]}
                case ["POST", "namespaces"]:
                    self.catalog.create_namespace(tuple(body["namespace"]), body["properties"])
                    return body
                case ["POST", "transactions", "commit"] if self.has_transactions:
                    self._commit(body["table-changes"])
                    return None
                case [_, "namespaces", space, *rest]:
                    return self._in_namespace(method, _levels(space), rest, body)
        raise Refusal(404, f"no such endpoint: {method} {path}")

    def _children(self, parent: tuple[str, ...]) -> list[tuple[str, ...]]:
        if parent and not self.catalog.namespace_exists(parent):
            raise NoSuchNamespaceError(".".join(parent))
        return list(self.catalog.list_namespaces(parent))

    def _in_namespace(self, method: str, space: tuple[str, ...], rest: Sequence[str], body: Json) -> Json:
        match [method, *rest]:
            case ["GET"]:
                properties = self.catalog.load_namespace_properties(space)
                return {"namespace": list(space), "properties": properties}
            case ["DELETE"]:
                self.catalog.drop_namespace(space)
                return None
            case ["GET", "tables"]:
                found = self.catalog.list_tables(space)
                return {"identifiers": [{"namespace": list(space), "name": name} for *_, name in found]}
            case ["POST", "register"]:
                self._refuse_change(body["name"])
                if len(body["name"]) > self.longest:
                    raise Refusal(400, f"a name of more than {self.longest} characters")
                made = self.catalog.register_table((*space, body["name"]), body["metadata-location"])
                return _told(made)
            case ["GET", "tables", name]:
                if unquote_plus(name) in self.hidden:
                    raise Refusal(403, "you may not see it")
                return _told(self.catalog.load_table((*space, unquote_plus(name))))
            case ["DELETE", "tables", name]:
                self._refuse_change(unquote_plus(name))
                self.catalog.drop_table((*space, unquote_plus(name)))
                return None
            case ["POST", "tables", name]:
                identifier = {"namespace": list(space), "name": unquote_plus(name)}
                self._commit([body | {"identifier": identifier}])
                return _told(self.catalog.load_table((*space, unquote_plus(name))))
        raise Refusal(404, f"no such endpoint: {method} {'/'.join(rest)}")

    def _commit(self, changes: Sequence[Json]) -> None:
        """Commit to all these tables, or to none."""
        with Session(self.catalog.engine) as session:
            for number, raw in enumerate(changes):
                self.before_commit(number)
                request = CommitTableRequest.model_validate(raw)
                name = (*request.identifier.namespace.root, request.identifier.name)
                self._refuse_change(name[-1])
                table = self.catalog.load_table(name)
                for requirement in request.requirements:
                    requirement.validate(table.metadata)
                new = update_table_metadata(
                    table.metadata, request.updates, metadata_location=table.metadata_location
                )
                self._move(session, table, _written(table, new))
            session.commit()

    def _refuse_change(self, name: str) -> None:
        if name in self.refused:
            raise Refusal(self.refused[name], "not this one")

    def _move(self, session: Session, table: Table, address: str) -> None:
        *space, name = table.name()
        there = (
            (IcebergTables.catalog_name == self.catalog.name)
            & (IcebergTables.table_namespace == ".".join(space))
            & (IcebergTables.table_name == name)
            & (IcebergTables.metadata_location == table.metadata_location)
        )
        values = {"metadata_location": address, "previous_metadata_location": table.metadata_location}
        moved: Any = session.execute(update(IcebergTables).where(there).values(**values))
        if moved.rowcount != 1:
            raise CommitFailedException(f"{'.'.join(table.name())} was changed meanwhile")


def _levels(text: str) -> tuple[str, ...]:
    return tuple(unquote_plus(text).split(LEVELS)) if text else ()


def _fold(body: Json) -> None:
    """Bring the names of tables and namespaces in a request to lower case."""
    for each in (body, *(change["identifier"] for change in body.get("table-changes", ()))):
        if "name" in each:
            each["name"] = each["name"].lower()
        if "namespace" in each:
            each["namespace"] = [level.lower() for level in each["namespace"]]


def _told(table: Table) -> Json:
    metadata = json.loads(table.metadata.model_dump_json())
    return {"metadata-location": table.metadata_location, "metadata": metadata, "config": {}}


def _written(table: Table, new: TableMetadata) -> str:
    """Write the next metadata file; its address."""
    number = int(table.metadata_location.rpartition("/")[2].partition("-")[0]) + 1
    address = str(table.location_provider().new_table_metadata_file_location(number))
    ToOutputFile.table_metadata(new, table.io.new_output(address))
    return address


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    rest: RestServer

    def _serve(self) -> None:
        place = urlsplit(self.path)
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        path = place.path.removeprefix("/v1/")
        self.rest.requests.append(f"{self.command} {path}")
        try:
            self._refuse()
            query = {name: values[0] for name, values in parse_qs(place.query).items()}
            self._say(200, self.rest.answer(self.command, path, query, body))
        except Refusal as error:
            self._say_error(error.status, error)
        except Exception as error:  # noqa: BLE001 - a server answers whatever went wrong
            self._say_error(_STATUS.get(type(error), 500), error)

    do_GET = do_POST = do_DELETE = do_HEAD = _serve

    def _refuse(self) -> None:
        if self.rest.is_away:
            raise Refusal(503, "away")
        wanted = self.rest.token
        if wanted is not None and self.headers.get("Authorization") != f"Bearer {wanted}":
            raise Refusal(401, "who are you?")
        if not self.rest.may_write and self.command in ("POST", "DELETE"):
            raise Refusal(403, "you may only read")

    def _say_error(self, status: int, error: Exception) -> None:
        said = {"message": str(error), "type": type(error).__name__, "code": status}
        self._say(status, {"error": said})

    def _say(self, status: int, body: Json) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self.send_response(204 if body is None else status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing: `requests` has them."""


@contextmanager
def serve(folder: Path, *, has_transactions: bool = True, token: str | None = None) -> Iterator[RestServer]:
    """A server whose catalog is in this folder, while the body runs."""
    catalog = SqlCatalog(
        "server", uri=f"sqlite:///{folder}/server.db", warehouse=f"file://{folder}/warehouse"
    )
    rest = RestServer(catalog, has_transactions, token)
    handler = type("Handler", (_Handler,), {"rest": rest})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        rest.uri = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield rest
        finally:
            server.shutdown()
            thread.join()
            catalog.close()


@dataclass
class ApacheServer:
    """Apache Iceberg's REST server, over its JDBC catalog in an SQLite file."""

    folder: Path
    port: int
    _process: subprocess.Popen[bytes] | None = None

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def restart(self) -> None:
        """Kill it if it runs, and wait until it answers."""
        self.kill()
        settings = {
            "CATALOG_REST_PORT": str(self.port),
            "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
            "CATALOG_URI": f"jdbc:sqlite:{self.folder}/apache.db",
            "CATALOG_JDBC_SCHEMA__VERSION": "V1",
            "CATALOG_WAREHOUSE": f"file://{self.folder}/warehouse",
            "CATALOG_IO__IMPL": "org.apache.iceberg.hadoop.HadoopFileIO",
        }
        options = ["-Xmx300m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        place = f"{locate_all(APACHE_REST)}/*"
        java = find_java(os.environ) / "bin/java"
        command = [str(java), *options, "-cp", place, "org.apache.iceberg.rest.RESTCatalogServer"]
        with (self.folder / "apache.log").open("ab") as log:
            self._process = subprocess.Popen(
                command, env={**os.environ, **settings}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + 60
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                said = (self.folder / "apache.log").read_text()[-2000:]
                raise missing(APACHE_REST.name, "it does not answer", detail=said)
            time.sleep(0.05)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.uri}/v1/config", timeout=10):
                return True
        except OSError:
            return False


@contextmanager
def serve_apache(folder: Path) -> Iterator[ApacheServer]:
    """The server with its files in this folder, while the body runs."""
    server = ApacheServer(folder, free_port())
    try:
        server.restart()
        yield server
    finally:
        server.kill()
