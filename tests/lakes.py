"""Places for lakes in tests: a directory, and a bucket of a real S3 server on loopback.

The same tests run on both (`any_store`); those on S3 carry the mark `server`. Each test gets an empty place
of its own.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from moto.server import ThreadedMotoServer

from headrace.lake.store.contract import Store
from headrace.lake.store.open import open_store

_BUCKET = "headrace-tests"


@pytest.fixture(scope="session")
def s3_options() -> Iterator[dict[str, str]]:
    """An S3 server for the session; what a client needs to reach it."""
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


@pytest.fixture
def bucket(s3_options: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty place on S3; the environment says how it is reached."""
    for name, value in s3_options.items():
        monkeypatch.setenv(name, value)
    return bucket_address()


def bucket_address() -> str:
    """An empty place in the bucket of `s3_options`."""
    return f"s3://{_BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def local_store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "lake")


@pytest.fixture(params=["local", pytest.param("s3", marks=pytest.mark.server)])
def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """An empty place of each kind."""
    if request.param == "local":
        return open_store(tmp_path / "lake")
    options = request.getfixturevalue("s3_options")
    return open_store(bucket_address(), options)
