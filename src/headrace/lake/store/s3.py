"""A lake in a bucket: `Store` on an object store with the S3 interface, by obstore.

Imported only where a lake's address begins with `s3:` (extra `s3`). The promise of `put_if_absent` is
S3's own: a put with `If-None-Match: *`, which AWS and the stores that follow it carry out atomically. A
put is durable once it is answered, so `sync` has nothing to do.

Options are those of delta-rs (`AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_ACCESS_KEY_ID`, ...), given or from
the environment; obstore and delta-rs read the same names. They are handed on and never shown.
"""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import S3Store as Bucket

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.lake.store.contract import missing

# The settings of S3 that obstore and delta-rs both know, without their prefix AWS_. The environment may
# hold others (AWS_CA_BUNDLE, ...), which obstore would refuse.
_SETTINGS = frozenset(
    """access_key_id secret_access_key session_token region default_region endpoint endpoint_url
    virtual_hosted_style_request skip_signature role_arn role_session_name web_identity_token_file
    container_credentials_relative_uri container_credentials_full_uri container_authorization_token_file
    server_side_encryption sse_kms_key_id sse_bucket_key_enabled sts_endpoint request_payer unsigned_payload
    conditional_put disable_tagging checksum_algorithm metadata_endpoint""".split()
)

# Seconds between conditional puts that were in conflict with others.
CONFLICT_PAUSES = (0.1, 0.2, 0.4, 0.8, 1.6)

# What delta-rs takes beside S3's own settings; obstore takes them as client options.
_CLIENT = {"aws_allow_http": "allow_http", "allow_http": "allow_http", "timeout": "timeout"}


@dataclass(frozen=True)
class S3Store:
    """A lake under a prefix of a bucket."""

    url: str
    _bucket: Bucket = field(repr=False)
    _options: dict[str, str] = field(repr=False)

    @property
    def storage_options(self) -> dict[str, str]:
        return dict(self._options)

    @property
    def durable_at_once(self) -> bool:
        return True

    def put_if_absent(self, key: str, data: bytes, *, lasting: bool = True) -> bool:
        for pause in CONFLICT_PAUSES:
            with _refusals(key):
                try:
                    obstore.put(self._bucket, key, data, mode="create")
                    return True
                except AlreadyExistsError:
                    # Also the answer to a conflict (409): another such request, perhaps our own that timed
                    # out, is under way, and whether the key will be there is not decided.
                    if self.exists(key):
                        return False
            time.sleep(pause)
        raise Transient(
            "LAKE_STORE",
            f'the object store has not decided who may write "{key}"',
            detail="a conditional put was in conflict with another one, of which nothing is to be seen",
            hint="nothing to do: it is tried again",
        )

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        with _refusals(key):
            obstore.put(self._bucket, key, data)

    def get(self, key: str) -> bytes | None:
        with _refusals(key):
            try:
                return bytes(obstore.get(self._bucket, key).bytes())
            except FileNotFoundError:
                return None

    def list(self, prefix: str) -> tuple[str, ...]:
        with _refusals(prefix):
            pages = obstore.list(self._bucket, prefix or None)
            return tuple(sorted(item["path"] for page in pages for item in page))

    def folders(self, prefix: str) -> tuple[str, ...]:
        with _refusals(prefix):
            found = obstore.list_with_delimiter(self._bucket, prefix)["common_prefixes"]
        return tuple(sorted(str(path).rsplit("/", 1)[1] for path in found))

    def delete(self, key: str) -> None:
        with _refusals(key):
            obstore.delete(self._bucket, key)

    def exists(self, key: str) -> bool:
        with _refusals(key):
            try:
                obstore.head(self._bucket, key)
            except FileNotFoundError:
                return False
            return True

    def empty(self) -> bool:
        with _refusals(""):
            return next(iter(obstore.list(self._bucket, chunk_size=1)), None) is None

    @contextmanager
    def open_output(self, key: str) -> Iterator[IO[bytes]]:
        buffer = io.BytesIO()
        yield buffer
        with _refusals(key):
            obstore.put(self._bucket, key, buffer.getvalue())

    def open_input(self, key: str) -> Any:
        import pyarrow as pa  # late: whoever reads small records alone loads no Arrow

        with _refusals(key):
            try:
                return pa.PythonFile(_Reader(key, obstore.open_reader(self._bucket, key)), mode="r")
            except FileNotFoundError as error:
                raise missing(key) from error

    def sync(self, keys: Iterable[str]) -> None:
        """Nothing: what S3 has answered is durable."""

    def sync_all(self) -> None:
        """Nothing, as for `sync`."""


def sizes(store: S3Store, prefix: str) -> list[int]:
    """The sizes of the objects below the folder `prefix`."""
    with _refusals(prefix):
        pages = obstore.list(store._bucket, prefix or None)
        return [item["size"] for page in pages for item in page]


class _Reader(io.RawIOBase):
    """obstore's reader as Python's own kind of file, which is what pyarrow takes."""

    def __init__(self, key: str, inner: obstore.ReadableFile) -> None:
        super().__init__()
        self._key = key
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
        with _refusals(self._key):  # the connection may break between two reads
            return bytes(self._inner.read(None if size < 0 else size))


def open_s3(rest: str, storage_options: Mapping[str, str]) -> S3Store:
    """The store at `bucket/prefix`; the environment's AWS settings, overridden by the given ones."""
    name, _, prefix = rest.strip("/").partition("/")
    if not name:
        raise Misconfigured("LAKE_URL", "the lake's address names no bucket", hint="give s3://bucket/prefix")
    ambient = {key: value for key, value in os.environ.items() if key.startswith("AWS_") and _is_known(key)}
    options = ambient | dict(storage_options)
    client = {_CLIENT[key.lower()]: _plain(value) for key, value in options.items() if key.lower() in _CLIENT}
    config = {setting: value for key, value in options.items() if (setting := _setting(key)) in _SETTINGS}
    bucket = _bucket(name, prefix, config, client)
    return S3Store(f"s3://{name}/{prefix}".rstrip("/"), bucket, options)


def _bucket(name: str, prefix: str, config: Mapping[str, Any], client: Mapping[str, Any]) -> Bucket:
    options: Any = {"config": config, "client_options": client}
    try:
        return Bucket(name, prefix=prefix or None, **options)
    except (BaseError, OSError, ValueError) as error:
        raise Misconfigured(
            "LAKE_S3_SETTINGS",
            f'the settings for bucket "{name}" are not complete or not valid',
            detail=type(error).__name__,
            hint="give AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or neither, AWS_REGION, AWS_ENDPOINT_URL",
        ) from None


def _setting(key: str) -> str:
    return key.lower().removeprefix("aws_")


def _is_known(key: str) -> bool:
    return _setting(key) in _SETTINGS or key.lower() in _CLIENT


def _plain(value: str) -> bool | str:
    return {"true": True, "false": False}.get(value.lower(), value)


@contextmanager
def _refusals(key: str) -> Iterator[None]:
    """Raise the object store's refusal as one of the families; its text may hold addresses, no secrets."""
    try:
        yield
    except HeadraceError:
        raise
    except (PermissionDeniedError, UnauthenticatedError) as error:
        raise Misconfigured(
            "LAKE_DENIED",
            f'the object store refuses access to "{key}"',
            hint="give credentials (AWS_ACCESS_KEY_ID, ... or a role) that may read and write the bucket",
        ) from error
    except (BaseError, OSError) as error:
        raise Transient(
            "LAKE_STORE",
            f'the object store did not carry out an operation on "{key}"',
            detail=type(error).__name__,
            hint="look at AWS_ENDPOINT_URL, AWS_REGION and the network; the work resumes by itself",
        ) from error
