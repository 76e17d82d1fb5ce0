"""A REST catalog: the server changes tables by the updates of a commit, and writes their metadata files.

    register                        a new table, by a metadata file of ours that has no tag yet
    POST transactions/commit        all other updates of all tables, or none
    POST namespaces/…/tables/…      without that: first the snapshots of each table, then the tags of each

So a tag is there once every table has its snapshot. A reader that finds a mark's tag on some tables alone
gets an error for the others, and never half of a mark.

A server that refuses one table refuses the whole transaction, and need not say which table it was. `_Commits`
finds it by transactions that can't succeed: their last table must have a UUID that none has. The server looks
at our rights first; so it answers 409 if it would have taken all of them. Then all others are committed.

The names of the server's files don't tell which mark a table is at. Its property `headrace.epoch` does, if
the tag of that mark shows the newest snapshot. `locations` gives each table the address that a file of ours
would have had (`metadata.epoch_of`), so that the export judges the tables of all catalogs alike.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    BadRequestError,
    ForbiddenError,
    NamespaceAlreadyExistsError,
    NamespaceNotEmptyError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
    UnauthorizedError,
)
from requests import HTTPError, Response
from requests.adapters import HTTPAdapter

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.failpoint import failpoint
from headrace.iceberg import metadata
from headrace.iceberg.catalog import OURS, TAKEN, Identifier, Move, name_error
from headrace.iceberg.shapes import Json

TRANSACTIONS = "transactions/commit"
TIMEOUT_SECONDS = 60.0
CONFLICT = 409
OF_ONE_TABLE = (400, 403, 404)  # answers that may be about one table of many
_REFUSED = {401: UnauthorizedError, 403: ForbiddenError}
EPOCH = "headrace.epoch"
_EMPTY: Json = {
    "current-snapshot-id": -1,
    "snapshots": [],
    "snapshot-log": [],
    "metadata-log": [],
    "refs": {},
    "properties": {},
}


@dataclass
class RestRows:
    """A REST catalog, open for as long as one export takes."""

    _catalog: RestCatalog
    files: dict[str, Json] = field(default_factory=dict)  # the metadata of its tables, by their addresses
    refusals: dict[Identifier, HeadraceError] = field(default_factory=dict)  # tables that it does not take
    registers: bool = True
    _registrations: set[Identifier] = field(default_factory=set)  # in this commit

    def __post_init__(self) -> None:
        self._forbidden = _Forbidden(self.refusals)
        for scheme in ("http://", "https://"):
            self._catalog._session.mount(scheme, _Impatient())

    @property
    def is_atomic(self) -> bool:
        """Tell whether the server commits several tables at once, as its configuration says."""
        known = getattr(self._catalog, "_supported_endpoints", ())
        return any(str(each).endswith(TRANSACTIONS) for each in known)

    def locations(self, namespace: str) -> dict[Identifier, str]:
        """The addresses of all tables in a namespace and below it."""
        found: dict[Identifier, str] = {}
        for space in self._spaces(namespace):
            for *_, name in self._catalog.list_tables(space):
                table = (".".join(space), name)
                try:
                    known = self._load((*space, name))
                except NoSuchTableError:
                    continue  # dropped meanwhile
                except ForbiddenError as error:
                    self._forbidden.add(table, error)
                    continue
                found[table] = address = _address(known)
                self.files[address] = known
        if not found:
            self._forbidden.raise_if_all(self.refusals)
        return found

    def owners(self, namespace: str) -> dict[str, str | None]:
        """The namespaces at and below this one, each with the id of the lake that made it."""
        found = {}
        for space in self._spaces(namespace):
            with suppress(NoSuchNamespaceError):
                found[".".join(space)] = self._catalog.load_namespace_properties(space).get(OURS)
        return found

    def _spaces(self, namespace: str) -> Iterator[tuple[str, ...]]:
        waiting = [tuple(namespace.split("."))]
        while waiting:
            space = waiting.pop()
            try:
                waiting += children(self._catalog, space)
            except NoSuchNamespaceError:
                continue
            yield space

    def commit(
        self, moves: Sequence[Move], spaces: Mapping[str, Mapping[str, str]], files: Mapping[str, Json]
    ) -> list[Identifier]:
        """Carry out all moves; return the tables that another program changed meanwhile.

        Where the server can't commit all at once, or tables are new, some may have changed by then. Another
        export completes them.
        """
        for space in sorted(spaces, key=len):
            # Without the right to make a namespace its tables are refused, too, and those of others are not.
            with suppress(NamespaceAlreadyExistsError, ForbiddenError):
                self._catalog.create_namespace(tuple(space.split(".")), dict(spaces[space]))
        failpoint("iceberg.server.before")
        for move in moves:
            if move.new is None:
                self._drop(move.table)
        try:
            changes = [self._change(move, files) for move in moves if move.new is not None]
        except _MovedError as error:
            return [error.table]
        self._drop_misnamed()
        made = [change for change in changes if change is not None and change.table not in self.refusals]
        commits = _Commits(self._catalog, self._forbidden)
        moved = commits.at_once(made) if self.is_atomic else commits.one_by_one(made)
        self._forbidden.raise_if_all(move.table for move in moves)
        return moved

    def anything(self) -> bool:
        """A server is nobody's own, and stays."""
        return True

    def remove_namespaces(self, spaces: Sequence[str]) -> None:
        """Remove namespaces that have no table."""
        for space in sorted(spaces, key=len, reverse=True):
            with suppress(NoSuchNamespaceError, NamespaceNotEmptyError):
                self._catalog.drop_namespace(tuple(space.split(".")))

    # --- one table ----------------------------------------------------------------------------------

    def _change(self, move: Move, files: Mapping[str, Json]) -> _Change | None:
        assert move.new is not None
        new, old = files[move.new], None if move.old is None else self.files[move.old]
        if old is None or old["table-uuid"] != new["table-uuid"]:
            if old is not None and not self._drop(move.table):
                return None
            if not self._register(move.table, move.new):
                return None
            old = metadata.without_tag(new)
        return _Change(move.table, old, new)

    def _register(self, table: Identifier, address: str) -> bool:
        """Register a new table; False where the server does not take it under its name."""
        name = (*table[0].split("."), table[1])
        try:
            try:
                self._catalog.register_table(name, address)
            except TableAlreadyExistsError:
                self._drop_misnamed()  # one of ours may have got its name
                self._catalog.register_table(name, address)
        except TableAlreadyExistsError:
            if table in _tables_of(self._catalog, table[0]):
                raise _MovedError(table) from None
            self.refusals[table] = name_error(".".join(table), TAKEN)
            return False
        except BadRequestError as error:
            self.refusals[table] = name_error(".".join(table), str(error)[:200])
            return False
        except (ForbiddenError, NoSuchNamespaceError) as error:
            self._forbidden.add(table, error)
            return False
        self._registrations.add(table)
        return True

    def _drop_misnamed(self) -> None:
        """Take out the tables of this commit that the server lists under another name, as in lower case."""
        spaces = {space for space, _ in self._registrations}
        listed = {table for space in spaces for table in _tables_of(self._catalog, space)}
        for table in self._registrations - listed:
            self._drop(table)
            self.refusals[table] = name_error(".".join(table), "it gives the table another name")
        self._registrations.clear()

    def _drop(self, table: Identifier) -> bool:
        """Drop a table, if it is there; False where the server lets us not."""
        try:
            self._catalog.drop_table((*table[0].split("."), table[1]))
        except NoSuchTableError:
            pass
        except ForbiddenError as error:
            self._forbidden.add(table, error)
            return False
        return True

    def _load(self, table: tuple[str, ...]) -> Json:
        catalog = self._catalog
        space = catalog._encode_namespace_path(table[:-1])
        url = catalog.url("namespaces/{namespace}/tables/{table}", namespace=space, table=_quote(table[-1]))
        response = catalog._session.get(url)
        if response.status_code == 404:
            raise NoSuchTableError
        _refuse_failed(response)
        said = response.json()
        return _EMPTY | said["metadata"] | {"metadata-location": said["metadata-location"]}


@dataclass
class _Forbidden:
    """Tables that the server lets us not read or change."""

    refusals: dict[Identifier, HeadraceError]
    causes: dict[Identifier, Exception] = field(default_factory=dict)

    def add(self, table: Identifier, cause: Exception) -> None:
        self.causes[table] = cause
        response = getattr(cause, "response", None)
        self.refusals[table] = Misconfigured(
            "ICEBERG_TABLE_REFUSED",
            f'the server of the Iceberg catalog refuses to show or change the table "{".".join(table)}"',
            detail=type(cause).__name__ if response is None else f"HTTP {response.status_code}",
            hint="look at the table and our rights there; all other tables are exported, and this one "
            "follows by itself",
        )

    def raise_if_all(self, tables: Iterable[Identifier]) -> None:
        """Raise the first cause if each of these tables has one: then the server refuses us."""
        causes = [self.causes.get(table) for table in tables]
        if causes and causes[0] is not None and all(causes):
            raise causes[0]


@dataclass(frozen=True)
class _Commits:
    """Commits to several tables; each returns the tables that another program changed meanwhile."""

    _catalog: RestCatalog
    _forbidden: _Forbidden

    def at_once(self, changes: Sequence[_Change]) -> list[Identifier]:
        """Commit all of them in one transaction, without those that the server refuses."""
        asked = [change for change in changes if change.updates()]
        if not asked:
            return []
        response = self._post_all([change.request(change.updates()) for change in asked])
        if response.status_code == CONFLICT:
            return [change.table for change in asked]
        if response.status_code not in OF_ONE_TABLE:
            _refuse_failed(response)
            return []
        refused = self._find_refusals(asked)
        if len(refused) in (0, len(asked)):
            return self.one_by_one(asked)  # it may refuse the transaction, and not the tables
        for change, error in refused:
            self._forbidden.add(change.table, error)
        return self.at_once([change for change in asked if change.table not in self._forbidden.causes])

    def _find_refusals(self, changes: Sequence[_Change]) -> list[tuple[_Change, Exception]]:
        """Find the tables that the server refuses to change, by halves; nothing is changed."""
        requests = [change.request(change.updates()) for change in changes]
        requests[-1]["requirements"].append({"type": "assert-table-uuid", "uuid": str(uuid.uuid4())})
        response = self._post_all(requests)
        if response.status_code == CONFLICT:
            return []
        error = _failure(response)
        if response.status_code not in OF_ONE_TABLE and error is not None:
            raise error
        if len(changes) == 1:
            return [] if error is None else [(changes[0], error)]
        half = len(changes) // 2
        return self._find_refusals(changes[:half]) + self._find_refusals(changes[half:])

    def one_by_one(self, changes: Sequence[_Change]) -> list[Identifier]:
        """Commit the snapshots of one after the other, then the tags."""
        for of_tags in (False, True):
            for change in changes:
                updates = change.tag_updates() if of_tags else change.snapshot_updates()
                if not updates or change.table in self._forbidden.causes:
                    continue
                space = self._catalog._encode_namespace_path(tuple(change.table[0].split(".")))
                place = f"namespaces/{space}/tables/{_quote(change.table[1])}"
                response = self._post(place, change.request(updates, is_second=of_tags))
                if response.status_code == CONFLICT:
                    return [change.table]
                error = _failure(response)
                if response.status_code in OF_ONE_TABLE and error is not None:
                    self._forbidden.add(change.table, error)
                    continue
                _refuse_failed(response)
                failpoint("iceberg.server.between")
        return []

    def _post_all(self, requests: Sequence[Json]) -> Response:
        return self._post(TRANSACTIONS, {"table-changes": requests})

    def _post(self, place: str, body: Json) -> Response:
        session: Any = self._catalog._session
        url = self._catalog.url("{place}", place=place)
        answer: Response = session.post(url, data=json.dumps(body).encode())
        return answer


@dataclass(frozen=True)
class _Change:
    """A table's metadata as the server has it, and as it shall be."""

    table: Identifier
    old: Json
    new: Json

    def updates(self) -> list[Json]:
        return [*self.snapshot_updates(), *self.tag_updates()]

    def snapshot_updates(self) -> list[Json]:
        """New columns, and the snapshot that shows them."""
        known = {each["schema-id"] for each in self.old["schemas"]}
        found = [
            {"action": "add-schema", "schema": each, "last-column-id": self.new["last-column-id"]}
            for each in self.new["schemas"]
            if each["schema-id"] not in known
        ]
        wanted = self.new["current-schema-id"]
        if wanted != self.old["current-schema-id"]:
            found.append({"action": "set-current-schema", "schema-id": wanted})
        listed = {each["snapshot-id"] for each in self.old["snapshots"]}
        for each in self.new["snapshots"]:
            if each["snapshot-id"] not in listed:
                main = {"ref-name": "main", "type": "branch", "snapshot-id": each["snapshot-id"]}
                found += [
                    {"action": "add-snapshot", "snapshot": each},
                    {"action": "set-snapshot-ref", **main},
                ]
        return [*found, *self._properties(of_mark=False)]

    def tag_updates(self) -> list[Json]:
        """The tag of the mark; tags and snapshots that go."""
        old, new = self.old["refs"], self.new["refs"]
        tags = {name: ref for name, ref in new.items() if name != "main" and ref != old.get(name)}
        found: list[Json] = [
            {"action": "set-snapshot-ref", "ref-name": name, **ref} for name, ref in tags.items()
        ]
        found += self._properties(of_mark=True)
        found += [
            {"action": "remove-snapshot-ref", "ref-name": name} for name in old.keys() - new.keys() - {"main"}
        ]
        stay = {each["snapshot-id"] for each in self.new["snapshots"]}
        gone = [each["snapshot-id"] for each in self.old["snapshots"] if each["snapshot-id"] not in stay]
        return [*found, {"action": "remove-snapshots", "snapshot-ids": gone}] if gone else found

    def _properties(self, *, of_mark: bool) -> list[Json]:
        changed = {
            name: value
            for name, value in self.new["properties"].items()
            if self.old["properties"].get(name) != value and name.startswith("headrace.") == of_mark
        }
        return [{"action": "set-properties", "updates": changed}] if changed else []

    def request(self, updates: Sequence[Json], *, is_second: bool = False) -> Json:
        """A commit of these updates, if the table is still as it was."""
        main = (self.new if is_second else self.old).get("current-snapshot-id", -1)
        return {
            "identifier": {"namespace": self.table[0].split("."), "name": self.table[1]},
            "requirements": [
                {"type": "assert-table-uuid", "uuid": self.old["table-uuid"]},
                {
                    "type": "assert-ref-snapshot-id",
                    "ref": "main",
                    "snapshot-id": None if main == -1 else main,
                },
            ],
            "updates": list(updates),
        }


class _MovedError(Exception):
    """Another program made a table of this name meanwhile."""

    def __init__(self, table: Identifier) -> None:
        super().__init__(table)
        self.table = table


class _Impatient(HTTPAdapter):
    """Ends a request that the server does not answer."""

    def send(self, *request: Any, **options: Any) -> Response:
        return super().send(*request, **options | {"timeout": options.get("timeout") or TIMEOUT_SECONDS})


def _address(known: Json) -> str:
    """The address that the metadata file would have if the export had written it."""
    place = f"{known['location'].removeprefix('file://')}/metadata"
    name = known["metadata-location"].rpartition("/")[2]
    if not _is_ours(known):
        return f"{place}/{name}"
    digest = hashlib.md5(name.encode(), usedforsecurity=False).hexdigest()
    return f"{place}/{_epoch(known):012d}-{digest}.metadata.json"


def _epoch(known: Json) -> int:
    said = known["properties"].get(EPOCH, "0")
    return int(said) if said.isdecimal() else 0


def _is_ours(known: Json) -> bool:
    """Tell whether the newest snapshot is that of the table's mark, or of one that has no tag yet."""
    snapshot = metadata.current(known)
    summary = {} if snapshot is None else snapshot["summary"]
    if snapshot is None or EPOCH not in summary:
        return False
    tagged = metadata.tags_of(known).get(_epoch(known))
    return bool(tagged == snapshot["snapshot-id"] or int(summary[EPOCH]) > _epoch(known))


def children(catalog: RestCatalog, space: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The namespaces right below one; NoSuchNamespaceError if it is gone.

    pyiceberg 0.12 encodes the parent twice, so a server finds none of a name with a blank or such.
    """
    found: list[tuple[str, ...]] = []
    asked = {"parent": catalog._namespace_separator.join(space)} if space else {}
    while True:
        response = catalog._session.get(catalog.url("namespaces"), params=asked)
        if response.status_code == 404:
            raise NoSuchNamespaceError(".".join(space))
        _refuse_failed(response)
        said = response.json()
        found += [tuple(levels) for levels in said["namespaces"]]
        if not said.get("next-page-token"):
            return found
        asked["pageToken"] = said["next-page-token"]


def _tables_of(catalog: RestCatalog, space: str) -> set[Identifier]:
    """The tables of a namespace; none if the namespace has another name there."""
    levels = tuple(space.split("."))
    for depth, level in enumerate(levels):
        if level not in {found[-1] for found in children(catalog, levels[:depth])}:
            return set()
    return {(space, name) for *_, name in catalog.list_tables(levels)}


def _quote(name: str) -> str:
    from urllib.parse import quote

    return quote(name, safe="")


def _failure(response: Response) -> Exception | None:
    """The error of an answer, as pyiceberg raises it; None for a success."""
    if response.status_code in _REFUSED:
        return _REFUSED[response.status_code](f"HTTP {response.status_code}")
    return None if response.ok else HTTPError(response.reason, response=response)


def _refuse_failed(response: Response) -> None:
    """Raise the error of an answer."""
    if (error := _failure(response)) is not None:
        raise error
