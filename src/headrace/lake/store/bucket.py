"""A lake in a bucket: `Store` on S3, Google Cloud Storage or Azure, by obstore.

Imported only where a lake's address names a bucket (extras `s3`, `gcs` and `azure`). The promise of
`put_if_absent` is the object store's own: S3 and Azure take `If-None-Match: *`, Google a generation of 0. Not
every store that speaks S3 keeps it, so `open.prove_atomic` tries it before anything is written. A put is
durable once it is answered, so `sync` has nothing to do.

Options are those of delta-rs (`AWS_ENDPOINT_URL`, `GOOGLE_SERVICE_ACCOUNT_KEY`, `AZURE_STORAGE_ACCOUNT_NAME`,
...), given or from the environment; obstore, delta-rs and Polars read the same names. They are handed on and
never shown. `kinds` has what differs between the stores.
"""

from __future__ import annotations

import io
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.lake.store import kinds
from headrace.lake.store.contract import is_left_over, missing, not_atomic_error
from headrace.lake.store.kinds import BucketAddress, BucketKind

# Seconds between conditional puts that were in conflict with others.
CONFLICT_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)
_AT_ONCE = 256 << 10  # bytes of an object that are read in one request, where a reader would take three

_Client = S3Store | GCSStore | AzureStore
_CLIENTS: Mapping[BucketKind, type[_Client]] = {
    kinds.S3: S3Store,
    kinds.GOOGLE: GCSStore,
    kinds.AZURE: AzureStore,
}


@dataclass(frozen=True)
class BucketStore:
    """A lake under a prefix of a bucket."""

    url: str
    kind: BucketKind = field(repr=False)
    _client: _Client = field(repr=False)
    _options: dict[str, str] = field(repr=False)

    @property
    def storage_options(self) -> dict[str, str]:
        return dict(self._options)

    @property
    def durable_at_once(self) -> bool:
        return True

    def put_if_absent(self, key: str, data: bytes, *, lasting: bool = True) -> bool:
        for pause in CONFLICT_PAUSES:
            with _refusals(self, key):
                try:
                    obstore.put(self._client, key, data, mode="create")
                    return True
                except AlreadyExistsError:
                    # Also the answer to a conflict (409): another such request, perhaps our own that timed
                    # out, is under way, and whether the key will be there is not decided.
                    if self.exists(key):
                        return False
                except (BaseError, NotImplementedError) as error:
                    if isinstance(error, NotImplementedError) or _code(error) == "NotImplemented":
                        detail = "the store, or its settings, know no conditional writes"
                        raise not_atomic_error(self.url, detail) from error
                    raise
            time.sleep(pause)
        raise Transient(
            "LAKE_STORE",
            f'the object store has not decided who may write "{key}"',
            detail="a conditional put was in conflict with another one, of which nothing is to be seen",
            hint="nothing to do: it is tried again",
        )

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        with _refusals(self, key):
            obstore.put(self._client, key, data)

    def get(self, key: str) -> bytes | None:
        with _absences(self, key):
            return bytes(obstore.get(self._client, key).bytes())
        return None

    def list(self, prefix: str) -> tuple[str, ...]:
        with _refusals(self, prefix):
            pages = obstore.list(self._client, prefix or None)
            return tuple(sorted(item["path"] for page in pages for item in page))

    def folders(self, prefix: str) -> tuple[str, ...]:
        with _refusals(self, prefix):
            found = obstore.list_with_delimiter(self._client, prefix)["common_prefixes"]
        return tuple(sorted(str(path).rsplit("/", 1)[1] for path in found))

    def delete(self, key: str) -> None:
        with _absences(self, key):
            obstore.delete(self._client, key)

    def exists(self, key: str) -> bool:
        with _absences(self, key):
            obstore.head(self._client, key)
            return True
        return False

    def empty(self) -> bool:
        with _refusals(self, ""):
            pages = obstore.list(self._client, chunk_size=10)
            return all(is_left_over(item["path"]) for page in pages for item in page)

    @contextmanager
    def open_output(self, key: str) -> Iterator[IO[bytes]]:
        buffer = io.BytesIO()
        yield buffer
        with _refusals(self, key):
            obstore.put(self._client, key, buffer.getvalue())

    def open_input(self, key: str) -> Any:
        import pyarrow as pa  # late: whoever reads small records alone loads no Arrow

        with _absences(self, key):
            answer = obstore.get(self._client, key)
            if answer.meta["size"] <= _AT_ONCE:
                return pa.BufferReader(pa.py_buffer(bytes(answer.bytes())))
            return pa.PythonFile(_Reader(self, key, obstore.open_reader(self._client, key)), mode="r")
        raise missing(key)

    def sync(self, keys: Iterable[str]) -> None:
        """Nothing: what an object store has answered is durable."""

    def sync_all(self) -> None:
        """Nothing, as for `sync`."""


def sizes(store: BucketStore, prefix: str) -> list[int]:
    """The sizes of the objects below the folder `prefix`."""
    with _refusals(store, prefix):
        pages = obstore.list(store._client, prefix or None)
        return [item["size"] for page in pages for item in page]


class _Reader(io.RawIOBase):
    """obstore's reader as Python's own kind of file, which is what pyarrow takes."""

    def __init__(self, store: BucketStore, key: str, inner: obstore.ReadableFile) -> None:
        super().__init__()
        self._store, self._key = store, key
        self._inner = inner

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._inner.seek(offset, whence)

    def tell(self) -> int:
        return self._inner.tell()

    def read(self, size: int = -1) -> bytes:
        with _refusals(self._store, self._key):  # the connection may break between two reads
            return bytes(self._inner.read(None if size < 0 else size))


def open_bucket(kind: BucketKind, rest: str, storage_options: Mapping[str, str]) -> BucketStore:
    """Open the bucket at `rest`, an address less its scheme; given options come before the environment's."""
    options = kind.from_environment() | dict(storage_options)
    address = kinds.parse_address(kind, rest, options)
    return BucketStore(address.url, kind, _client(address, options), options)


def _client(address: BucketAddress, options: Mapping[str, str]) -> _Client:
    kind = address.kind
    given = {kind.setting(key): value for key, value in options.items()}
    config = {kind.variables.lower() + name: given[name] for name in given.keys() & kind.settings}
    if address.account is not None:
        config["azure_storage_account_name"] = address.account
    connection = {name: _plain(given[name]) for name in given.keys() & kinds.CONNECTION}
    more: Any = {"config": config, "client_options": connection}
    try:
        return _CLIENTS[kind](address.bucket, prefix=address.prefix or None, **more)
    except (BaseError, OSError, ValueError) as error:
        # Nothing of the error's text: it may quote a setting.
        raise kinds.settings_error(kind, address.bucket, type(error).__name__) from None


def _plain(value: str) -> bool | str:
    return {"true": True, "false": False}.get(value.lower(), value)


@contextmanager
def _absences(store: BucketStore, key: str) -> Iterator[None]:
    """End the body where the object is absent; raise other refusals, an absent bucket among them."""
    with _refusals(store, key):
        try:
            yield
        except FileNotFoundError as error:
            if _code(error) in _NO_BUCKET:
                raise


@contextmanager
def _refusals(store: BucketStore, key: str) -> Iterator[None]:
    """Raise the object store's refusal as one of the families, with its code and nothing else of it."""
    try:
        yield
    except HeadraceError:
        raise
    except (BaseError, OSError) as error:
        raise _fault(store.kind, store.url, key, error) from error


# How stores say no, in the body of their answer; a HEAD has none.
_CODE = re.compile(r"<Code>(\w+)</Code>")
_STATUS = re.compile(r"status code: (\d{3})")
_NO_BUCKET = frozenset({"NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"})
_ELSEWHERE = frozenset(
    {"PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"}
)
_NO_LOCATION = "redirect without LOCATION"  # obstore's words for S3's PermanentRedirect
_CLOCK = frozenset({"RequestTimeTooSkewed", "RequestExpired"})


def _code(error: Exception) -> str:
    """The store's own code for its refusal; empty if it gave none."""
    text = str(error)
    if _NO_LOCATION in text:
        return "PermanentRedirect"
    found = _CODE.search(text)
    return found[1] if found else ""


def _fault(kind: BucketKind, url: str, key: str, error: Exception) -> HeadraceError:
    """The error of a refusal; `detail` is the store's own code."""
    code = _code(error)
    status = found[1] if (found := _STATUS.search(str(error))) else ""
    detail = code or (f"{type(error).__name__}, HTTP {status}" if status else type(error).__name__)
    if code in _NO_BUCKET:
        return Misconfigured(
            "LAKE_BUCKET_ABSENT",
            f'there is no bucket for "{url}"',
            detail=detail,
            hint="check the name, and make the bucket first: headrace makes none",
        )
    if code in _ELSEWHERE:
        return Misconfigured(
            "LAKE_BUCKET_REGION",
            f'the bucket of "{url}" is in another region than the settings say',
            detail=detail,
            hint="set AWS_REGION to the bucket's region: aws s3api get-bucket-location --bucket NAME",
        )
    if isinstance(error, PermissionDeniedError | UnauthenticatedError) or status in ("401", "403"):
        clock = code in _CLOCK
        return Misconfigured(
            "LAKE_DENIED",
            f'the object store refuses access to "{key}"',
            detail=detail,
            hint="set this machine's clock: the store accepts no request of another time"
            if clock
            else f"give credentials ({kind.credentials}) that may read and write the bucket; check the clock",
        )
    return Transient(
        "LAKE_STORE",
        f'the object store did not carry out an operation on "{key}"',
        detail=detail,
        hint="look at the network, the store's endpoint and whether there are credentials "
        f"({kind.credentials}); the work resumes by itself",
    )
