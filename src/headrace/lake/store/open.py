"""Opens the store at an address: the only module that knows every kind of store.

The code of a bucket is imported when one is opened, since it comes with an extra of its own.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from headrace.core.errors import Misconfigured
from headrace.lake.store import local
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore


def open_store(where: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at a directory, a `file:` URL or an `s3:` URL; opening it touches nothing."""
    text = os.fspath(where)
    scheme, separator, rest = text.partition("://")
    if separator and scheme in ("s3", "s3a"):
        # Imported late: obstore comes with the extra `s3` only.
        from headrace.lake.store.s3 import open_s3

        return open_s3(rest, dict(storage_options or {}))
    if separator and scheme != "file":
        raise Misconfigured(
            "LAKE_URL",
            f'a lake cannot be kept at a "{scheme}" address',
            hint="give a directory or an s3://bucket/prefix",
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


def usage(store: Store, prefix: str) -> tuple[int, int]:
    """Count the files below the folder `prefix`, at any depth, and their bytes."""
    if isinstance(store, LocalStore):
        sizes = local.sizes(store, prefix)
    else:
        from headrace.lake.store import s3

        assert isinstance(store, s3.S3Store)
        sizes = s3.sizes(store, prefix)
    return len(sizes), sum(sizes)
