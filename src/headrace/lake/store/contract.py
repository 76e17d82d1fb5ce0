"""A store, in which a lake lives: bytes under keys, the same on a local directory and on an object store.

Everything in the lake that is not a Delta log is read and written through a `Store`; delta-rs gets the
store's `url` and `storage_options` for the rest. Keys are relative to the lake and use `/`.

What the commit protocol rests on is one operation, `put_if_absent`: of any number of writers that try to
create a key exactly one is told True, and nobody ever reads half of what it wrote. On a directory that is
a hidden temporary file, made durable, and a hard link (`link` fails where the name is taken); in a bucket
it is a conditional put (`headrace.lake.store.bucket`).

    put_if_absent   True to one writer; durable when it returns, with the folder's own entry (if `lasting`)
    put             whole or not at all, after a power cut too; the last writer wins; not durable by itself
    sync            makes the named files and the folders above them durable

`sync` is kept apart since it costs milliseconds that only the acknowledgement has to wait for. What a
program that was ended left of a `put` is a hidden file, which nobody sees. Deleting what is absent is not
an error. A store never looks into what it holds and never shows its options: they may be credentials.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import IO, Any, Protocol

from headrace.core.errors import Definite, HeadraceError, Misconfigured, Transient


class Store(Protocol):
    """Bytes under keys; see the module's essay for what each method promises."""

    @property
    def url(self) -> str:
        """The lake as delta-rs, DuckDB and Polars open it."""

    @property
    def storage_options(self) -> dict[str, str]:
        """The options with which delta-rs and Polars open `url`; may hold credentials."""

    @property
    def durable_at_once(self) -> bool:
        """Tell whether everything that was written, by whomever, would survive a power cut now."""

    def put_if_absent(self, key: str, data: bytes, *, lasting: bool = True) -> bool:
        """Create `key`; where it is not `lasting` a power cut may leave half of it, or nothing."""

    def put(self, key: str, data: bytes, *, lasting: bool = True) -> None:
        """Replace what is stored under `key`; where it is not `lasting` a power cut may leave half of it."""

    def get(self, key: str) -> bytes | None:
        """Read the bytes under `key`; None where there are none."""

    def list(self, prefix: str) -> tuple[str, ...]:
        """The keys below the folder `prefix`, at any depth, in order."""

    def folders(self, prefix: str) -> tuple[str, ...]:
        """The names of the folders directly below the folder `prefix`, in order."""

    def delete(self, key: str) -> None: ...

    def exists(self, key: str) -> bool: ...

    def empty(self) -> bool:
        """True if there is nothing but, perhaps, what a lake that came to nothing left."""

    def open_output(self, key: str) -> AbstractContextManager[IO[bytes]]:
        """A sink for one new object; nothing is left under `key` if the body raises."""

    def open_input(self, key: str) -> Any:
        """Something that pyarrow reads with random access."""

    def sync(self, keys: Iterable[str]) -> None: ...

    def sync_all(self) -> None:
        """Make everything durable that anybody has written into the lake."""


# A file that a program which was ended may leave in a place where no lake is yet: a hidden one.
LEFT_OVER = "_headrace/.{}.tmp"


def is_left_over(key: str) -> bool:
    """Tell whether a program that was ended while it made a lake may have left this file."""
    folder, _, name = key.rpartition("/")
    return folder == "_headrace" and name.startswith(".") and name.endswith(".tmp")


def not_atomic_error(url: str, detail: str) -> Misconfigured:
    """Make the error of an object store whose conditional writes are none."""
    return Misconfigured(
        "LAKE_STORE_NOT_ATOMIC",
        f'the object store of "{url}" does not keep what was written first',
        detail=detail,
        hint="choose a store that honours conditional writes (If-None-Match: *), or upgrade this one; "
        "leave AWS_CONDITIONAL_PUT unset",
    )


def locate(store: Store, key: str) -> str:
    """The key's own address, for readers that take lists of files."""
    return f"{store.url}/{key}"


def missing(key: str) -> Definite:
    """The error for a file that a log names and the store does not have."""
    return Definite(
        "LAKE_FILE_MISSING",
        f'the lake\'s file "{key}" is gone',
        hint="after a power cut headrace run mends the lake; else restore it from a backup of the lake, "
        "or mirror into a new lake",
    )


@contextmanager
def refusals(key: str) -> Iterator[None]:
    """Raise what the operating system refuses as one of the families."""
    try:
        yield
    except HeadraceError:
        raise
    except PermissionError as error:
        raise Misconfigured(
            "LAKE_DENIED",
            f'the lake\'s file "{key}" may not be used by this user',
            detail=error.strerror,
            hint="give the user that runs headrace read and write access to the whole lake",
        ) from error
    except OSError as error:
        raise Transient(
            "LAKE_STORE",
            f'the lake\'s file "{key}" could not be read or written',
            detail=error.strerror or type(error).__name__,
            hint="look at the disk's space and health; the work resumes by itself",
        ) from error
