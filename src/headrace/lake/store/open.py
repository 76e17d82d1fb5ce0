"""Opens the store at an address: the only module that knows every kind of store.

The code of a bucket is imported when one is opened, since it comes with an extra of its own.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from importlib.util import find_spec

from headrace.core.errors import Misconfigured
from headrace.lake.store import kinds, local
from headrace.lake.store.contract import LEFT_OVER, Store, not_atomic_error
from headrace.lake.store.local import LocalStore


def open_store(where: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at a directory, a `file:` URL or a bucket's URL; opening it touches nothing."""
    text = os.fspath(where)
    scheme, separator, rest = text.partition("://")
    kind = kinds.kind_of(scheme) if separator else None
    if kind is not None:
        return _open_bucket(kind, rest, storage_options or {})
    if separator and scheme != "file":
        known = " or ".join(kind.address for kind in kinds.KINDS)
        raise Misconfigured(
            "LAKE_URL",
            f'a lake cannot be kept at a "{scheme}" address',
            hint=f"give a directory, {known}",
        )
    path = os.path.abspath(rest if separator else os.path.expanduser(text))
    if "%" in path:
        # delta-rs decodes the path of a table a second time when it reads the log.
        raise Misconfigured(
            "LAKE_URL",
            "the path of a lake cannot contain a percent sign",
            hint="choose a directory without it",
        )
    return LocalStore(path)


def _open_bucket(kind: kinds.BucketKind, rest: str, storage_options: Mapping[str, str]) -> Store:
    if find_spec("obstore") is None:
        raise Misconfigured(
            "LAKE_BUCKET_EXTRA",
            "a lake in a bucket needs the package obstore",
            hint="pip install 'headrace[s3]' on this machine and on every executor",
        )
    from headrace.lake.store.bucket import open_bucket  # late: only here is obstore sure to be there

    return open_bucket(kind, rest, storage_options)


def prove_atomic(store: Store) -> None:
    """Prove that a bucket keeps the first object of two, before anything is written into the lake.

    Called for each new lake and at the start of each run. All that is certain rests on `put_if_absent`, and
    some stores that speak S3 ignore the condition. Raises `LAKE_STORE_NOT_ATOMIC`; the trial is removed.
    """
    if isinstance(store, LocalStore):
        return
    key = LEFT_OVER.format(uuid.uuid4().hex)
    try:
        store.put_if_absent(key, b"1")  # its answer proves nothing: a client that tries again may meet itself
        proved = not store.put_if_absent(key, b"2") and store.get(key) == b"1"
    finally:
        store.delete(key)
    if not proved:
        detail = "a put on the condition that the object is absent replaced the object"
        raise not_atomic_error(store.url, detail)


def usage(store: Store, prefix: str) -> tuple[int, int]:
    """Count the files below the folder `prefix`, at any depth, and their bytes."""
    if isinstance(store, LocalStore):
        sizes = local.sizes(store, prefix)
    else:
        from headrace.lake.store import bucket

        assert isinstance(store, bucket.BucketStore)
        sizes = bucket.sizes(store, prefix)
    return len(sizes), sum(sizes)
