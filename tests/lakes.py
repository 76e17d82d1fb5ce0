"""Places for lakes in tests: a directory, and buckets of real servers on loopback.

    local   a directory
    s3      moto's server, from pip
    gcs     a server of our own (`headrace_testing.gcs`)
    azure   Microsoft's azurite, from npm; only in tests marked `full`

The same tests run on all (`any_store`, `any_bucket`); those in buckets carry the mark `server`. Each test
gets an empty place of its own. A server starts with the first test that needs it. `tests.conftest` loads
this module as a plugin.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from headrace.core.names import TableName
from headrace.lake.format import layout
from headrace.lake.log.table import LakeTable
from headrace.lake.read.lake import Lake
from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store


def has_vectors(lake: Lake) -> bool:
    """Tell whether a file of one of the tables has a deletion vector at the newest mark."""
    cut = lake.at()
    folders = {name: layout.table_folder("main", TableName(*name.split("."))) for name in cut.mark.versions}
    tables = (LakeTable(lake.store, f).at(cut.mark.versions[name]) for name, f in folders.items())
    return any(file.vector for table in tables for file in table.files().values())


_BUCKET = "headrace-tests"
_SCHEMES = {"s3": "s3", "gcs": "gs", "azure": "az"}

IN_BUCKETS = (
    pytest.param("s3", marks=pytest.mark.server),
    pytest.param("gcs", marks=pytest.mark.server),
    pytest.param("azure", marks=[pytest.mark.server, pytest.mark.full]),
)
# For tests that take long: what is not S3 is left to `make integration`.
IN_BUCKETS_LONG = (
    pytest.param("s3", marks=pytest.mark.server),
    pytest.param("gcs", marks=[pytest.mark.server, pytest.mark.full]),
    pytest.param("azure", marks=[pytest.mark.server, pytest.mark.full]),
)


@contextmanager
def _moto() -> Iterator[dict[str, str]]:
    from moto.server import ThreadedMotoServer  # late: it takes half a second

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    options = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "nobody-else-knows",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    made = Request(f"{options['AWS_ENDPOINT_URL']}/{_BUCKET}", method="PUT")
    with urlopen(made) as answer:
        assert answer.status == 200
    yield options
    server.stop()


@dataclass
class BucketServers:
    """The servers of the session; what a client needs to reach each."""

    _stack: ExitStack
    _options: dict[str, dict[str, str]] = field(default_factory=dict)

    def options(self, kind: str) -> dict[str, str]:
        """The options for the server of that kind, which starts now if it does not run yet."""
        if kind not in self._options:
            self._options[kind] = self._start(kind)
        return self._options[kind]

    def _start(self, kind: str) -> dict[str, str]:
        # Late: every test run loads this module.
        if kind == "gcs":
            from headrace_testing.gcs import gcs

            return self._stack.enter_context(gcs([_BUCKET])).options
        if kind == "azure":
            from headrace_testing.azurite import azurite

            return self._stack.enter_context(azurite([_BUCKET])).options
        return self._stack.enter_context(_moto())


@dataclass(frozen=True, slots=True)
class Bucket:
    """An empty place in a bucket, and the options with which it is reached."""

    kind: str
    address: str
    options: dict[str, str]

    @property
    def secret(self) -> str:
        """The part of the options that nobody may show."""
        if self.kind == "gcs":
            account = json.loads(self.options["GOOGLE_SERVICE_ACCOUNT_KEY"])
            return str(account["private_key"]).splitlines()[1]
        return self.options["AWS_SECRET_ACCESS_KEY" if self.kind == "s3" else "AZURE_STORAGE_ACCOUNT_KEY"]


@pytest.fixture(scope="session")
def bucket_servers() -> Iterator[BucketServers]:
    """Servers of buckets for the session."""
    with ExitStack() as stack:
        yield BucketServers(stack)


@pytest.fixture(scope="session")
def s3_options(bucket_servers: BucketServers) -> dict[str, str]:
    """The options for the S3 server of the session."""
    return bucket_servers.options("s3")


@pytest.fixture
def bucket(s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty place on S3; the environment says how it is reached."""
    for name, value in s3_options.items():
        monkeypatch.setenv(name, value)
    return bucket_address()


@pytest.fixture(params=IN_BUCKETS_LONG)
def any_bucket(
    request: pytest.FixtureRequest, bucket_servers: BucketServers, monkeypatch: pytest.MonkeyPatch
) -> Bucket:
    """An empty place in a bucket of each kind; the environment says how it is reached."""
    options = bucket_servers.options(request.param)
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    return Bucket(request.param, bucket_address(request.param), options)


def bucket_address(kind: str = "s3") -> str:
    """An empty place in the bucket of that kind's server."""
    return f"{_SCHEMES[kind]}://{_BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "lake")


@pytest.fixture(params=["local", *IN_BUCKETS])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, bucket_servers: BucketServers) -> Store:
    """An empty place of each kind."""
    if request.param == "local":
        return open_store(tmp_path / "lake")
    return open_store(bucket_address(request.param), bucket_servers.options(request.param))
