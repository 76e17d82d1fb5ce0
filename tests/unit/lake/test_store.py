"""Stores: the same promises on a directory and in buckets of every kind."""

from __future__ import annotations

import base64
import json
import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from moto import server as moto_server

from headrace.core.errors import Definite, Misconfigured, Transient
from headrace.lake.format import formatfile
from headrace.lake.store import bucket, open
from headrace.lake.store.contract import Store
from headrace.lake.store.local import LocalStore
from headrace.lake.store.open import open_store, prove_atomic, usage
from headrace_testing.gcs import gcs
from headrace_testing.powercut import Disk
from tests.lakes import IN_BUCKETS, BucketServers, bucket_address

ACCOUNT = json.dumps(
    {"private_key": "canary", "private_key_id": "1", "client_email": "a@b", "disable_oauth": True}
)


def test_only_the_first_put_if_absent_is_told_true(any_store: Store) -> None:
    assert any_store.put_if_absent("a/c.json", b"first", lasting=False)
    assert not any_store.put_if_absent("a/c.json", b"second", lasting=False)
    assert any_store.put_if_absent("a/b.json", b"first")
    assert not any_store.put_if_absent("a/b.json", b"second")
    assert any_store.get("a/b.json") == b"first"


# Not moto's: it looks and writes in two steps.
@pytest.mark.parametrize("any_store", ["local", *IN_BUCKETS[1:]], indirect=True)
def test_of_many_writers_at_once_exactly_one_wins(any_store: Store) -> None:
    won: list[bytes] = []
    start = threading.Barrier(8)

    def attempt(data: bytes) -> None:
        start.wait()
        if any_store.put_if_absent("key", data):
            won.append(data)

    threads = [threading.Thread(target=attempt, args=(str(n).encode(),)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert any_store.get("key") == won[0]
    assert any_store.list("") == ("key",)


def test_put_replaces_and_get_tells_what_is_absent(any_store: Store) -> None:
    assert any_store.get("k") is None
    assert not any_store.exists("k")
    any_store.put("k", b"1")
    any_store.put("k", b"2")
    assert any_store.get("k") == b"2"
    assert any_store.exists("k")


def test_listing_goes_to_any_depth_and_stays_in_its_folder(any_store: Store) -> None:
    for key in ("p/2", "p/1", "p/q/3", "pp/4"):
        any_store.put(key, b"")
    assert any_store.list("p") == ("p/1", "p/2", "p/q/3")
    assert any_store.list("absent") == ()


def test_the_use_of_a_folder_is_the_number_and_the_bytes_of_its_files(any_store: Store) -> None:
    for key in ("p/2", "p/q/3", "pp/4"):
        any_store.put(key, key.encode())
    assert usage(any_store, "p") == (2, 8)
    assert usage(any_store, "absent") == (0, 0)


def test_folders_are_named_once_and_not_deeper(any_store: Store) -> None:
    for key in ("m/one/a/b", "m/one/c", "m/two/d", "m/file"):
        any_store.put(key, b"")
    assert any_store.folders("m") == ("one", "two")
    assert any_store.folders("absent") == ()


def test_deleting_what_is_absent_is_no_error(any_store: Store) -> None:
    any_store.put("k", b"")
    any_store.delete("k")
    any_store.delete("k")
    assert not any_store.exists("k")


def test_a_place_is_empty_until_something_is_put(any_store: Store) -> None:
    assert any_store.empty()
    any_store.put("a/b", b"")
    assert not any_store.empty()


def test_a_place_where_a_lake_came_to_nothing_is_empty(local_store: LocalStore) -> None:
    """A program that is killed while it makes a lake leaves the hidden file of its first put."""
    folder = Path(local_store.path, "_headrace")
    folder.mkdir(parents=True)
    (folder / ".0123456789abcdef.tmp").write_bytes(b"{")
    assert local_store.empty()
    assert formatfile.create_lake(local_store) == formatfile.open_lake(local_store)
    assert not local_store.empty()
    (folder / "format.json").unlink()
    (folder / "notes.txt").touch()
    assert not local_store.empty()


def test_what_is_put_if_absent_is_on_the_disk_when_it_returns(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "new" / "lake", tmp_path / "journal")
    store = LocalStore(str(disk.root))
    dice = random.Random(1)
    with disk.watched():
        for number in range(20):
            assert store.put_if_absent(f"a/{number}/b", b"1")
            store.put(f"c/{number}", b"2")
            disk.cut(dice)
            assert store.get(f"a/{number}/b") == b"1"
            # Perhaps gone, but never half of it.
            assert store.get(f"c/{number}") in (b"2", None)


class _Deciding(BaseHTTPRequestHandler):
    """An object store that has not decided yet whose conditional put came first."""

    undecided: ClassVar[int] = 0
    there: ClassVar[bytes | None] = None

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        kind = type(self)
        if kind.undecided > 0:
            kind.undecided -= 1
            self._answer(409, b"<Error><Code>ConditionalRequestConflict</Code></Error>")
        elif kind.there is not None:
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
        else:
            kind.there = body
            self._answer(200)

    def do_HEAD(self) -> None:
        self._answer(404 if type(self).there is None else 200)

    def _answer(self, code: int, body: bytes = b"") -> None:
        self.send_response(code)
        self.send_header("ETag", '"0"')
        self.send_header("Last-Modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the console."""


@contextmanager
def _served(handler: type[BaseHTTPRequestHandler]) -> Iterator[Store]:
    """A store on S3 whose server is this handler."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    options = {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "id",
        "AWS_SECRET_ACCESS_KEY": "key",
        "AWS_REGION": "us-east-1",
    }
    yield open_store("s3://bucket/lake", options)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def deciding() -> Iterator[Store]:
    with _served(_Deciding) as store:
        yield store


@pytest.mark.parametrize("undecided", [1, 3])
def test_a_conflict_on_s3_is_no_answer_and_is_asked_again(
    deciding: Store, undecided: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Deciding, "undecided", undecided)
    monkeypatch.setattr(_Deciding, "there", None)
    assert deciding.put_if_absent("k", b"1")
    assert not deciding.put_if_absent("k", b"2")


def test_a_conflict_on_s3_that_stays_is_transient(deciding: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Deciding, "undecided", 1000)
    monkeypatch.setattr(_Deciding, "there", None)
    monkeypatch.setattr(bucket, "CONFLICT_PAUSES", (0.0, 0.0))
    with pytest.raises(Transient) as caught:
        deciding.put_if_absent("k", b"1")
    assert caught.value.code == "LAKE_STORE"


class _Refusing(BaseHTTPRequestHandler):
    """An object store that answers each request alike, or is too busy at first."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = ""
    busy: ClassVar[int] = 0
    when_busy: ClassVar[int] = 503

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kind = type(self)
        if kind.busy > 0:
            kind.busy -= 1
            self.send_error(kind.when_busy)
            return
        body = f"<Error><Code>{kind.code}</Code></Error>".encode()
        self.send_response(kind.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_PUT = do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the console."""


@pytest.mark.parametrize(
    ("status", "said", "expected", "hint"),
    [
        (404, "NoSuchBucket", "LAKE_BUCKET_ABSENT", "make the bucket"),
        (301, "PermanentRedirect", "LAKE_BUCKET_REGION", "AWS_REGION"),
        (400, "AuthorizationHeaderMalformed", "LAKE_BUCKET_REGION", "AWS_REGION"),
        (403, "AccessDenied", "LAKE_DENIED", "AWS_ACCESS_KEY_ID"),
        (403, "RequestTimeTooSkewed", "LAKE_DENIED", "clock"),
    ],
)
def test_a_bucket_that_refuses_is_told_apart_before_a_lake_is_made(
    monkeypatch: pytest.MonkeyPatch, status: int, said: str, expected: str, hint: str
) -> None:
    monkeypatch.setattr(_Refusing, "status", status)
    monkeypatch.setattr(_Refusing, "code", said)
    with _served(_Refusing) as store:
        for act in (formatfile.create_lake, formatfile.open_lake, prove_atomic, lambda store: store.list("")):
            with pytest.raises(Misconfigured) as raised:
                act(store)
            assert (raised.value.code, raised.value.detail) == (expected, said)
            assert hint in (raised.value.hint or "")


@pytest.mark.full  # the client asks ten times
def test_a_store_that_knows_no_conditional_put_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Refusing, "status", 501)
    monkeypatch.setattr(_Refusing, "code", "NotImplemented")
    with _served(_Refusing) as store, pytest.raises(Misconfigured) as raised:
        store.put_if_absent("k", b"1")
    assert raised.value.code == "LAKE_STORE_NOT_ATOMIC"


@pytest.mark.parametrize("busy", [503, 429])  # Google's for too many writes of one object
def test_a_store_that_is_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch, busy: int) -> None:
    monkeypatch.setattr(_Refusing, "when_busy", busy)
    monkeypatch.setattr(_Refusing, "status", 404)
    monkeypatch.setattr(_Refusing, "code", "NoSuchKey")
    monkeypatch.setattr(_Refusing, "busy", 2)
    with _served(_Refusing) as store:
        assert store.get("k") is None
    assert _Refusing.busy == 0


@pytest.mark.parametrize("kind", IN_BUCKETS)
def test_a_bucket_that_is_not_there_holds_no_lake(kind: str, bucket_servers: BucketServers) -> None:
    store = open_store(bucket_address(kind).replace("headrace-tests", "absent"), bucket_servers.options(kind))
    for act in (formatfile.create_lake, formatfile.open_lake, prove_atomic):
        with pytest.raises(Misconfigured) as raised:
            act(store)
        assert raised.value.code == "LAKE_BUCKET_ABSENT"


@pytest.mark.parametrize("kind", IN_BUCKETS[1:])  # moto takes any credentials
def test_a_bucket_refuses_the_credentials_of_another(kind: str, bucket_servers: BucketServers) -> None:
    options, foreign = dict(bucket_servers.options(kind)), base64.b64encode(b"canary").decode()
    if kind == "azure":
        options["AZURE_STORAGE_ACCOUNT_KEY"] = foreign
    else:
        with gcs([]) as other:
            account = json.loads(options["GOOGLE_SERVICE_ACCOUNT_KEY"])
            account["private_key"] = json.loads(other.options["GOOGLE_SERVICE_ACCOUNT_KEY"])["private_key"]
        options["GOOGLE_SERVICE_ACCOUNT_KEY"] = json.dumps(account)
    address = bucket_address(kind)
    with pytest.raises(Misconfigured) as raised:
        formatfile.create_lake(open_store(address, options))
    assert raised.value.code == "LAKE_DENIED"
    assert foreign not in str(raised.value)
    assert open_store(address, bucket_servers.options(kind)).list("") == ()


@pytest.fixture(params=[pytest.param("s3", marks=pytest.mark.server), "gcs"])
def forgetful(
    request: pytest.FixtureRequest, bucket_servers: BucketServers, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Store]:
    """A store that speaks the interface and ignores the condition of a put."""
    if request.param == "gcs":
        with gcs(["lakes"], ignores_conditions=True) as server:
            yield open_store("gs://lakes/lake", server.options)
        return
    application = vars(moto_server)["DomainDispatcherApplication"]
    real = application.__call__

    def call(self: Any, environ: dict[str, Any], start: Any) -> Any:
        environ.pop("HTTP_IF_NONE_MATCH", None)
        return real(self, environ, start)

    monkeypatch.setattr(application, "__call__", call)
    yield open_store(bucket_address(), bucket_servers.options("s3"))


def test_a_store_that_ignores_conditions_is_refused_and_left_empty(forgetful: Store) -> None:
    with pytest.raises(Misconfigured) as raised:
        formatfile.create_lake(forgetful)
    assert raised.value.code == "LAKE_STORE_NOT_ATOMIC"
    assert forgetful.list("") == ()


def test_settings_without_conditional_writes_are_refused(bucket_servers: BucketServers) -> None:
    options = bucket_servers.options("s3") | {"AWS_CONDITIONAL_PUT": "disabled"}
    with pytest.raises(Misconfigured) as raised:
        formatfile.create_lake(open_store(bucket_address(), options))
    assert raised.value.code == "LAKE_STORE_NOT_ATOMIC"


def test_a_store_is_proved_and_nothing_of_the_proof_stays(any_store: Store) -> None:
    prove_atomic(any_store)
    assert any_store.list("") == ()
    any_store.put("_headrace/.0123456789abcdef.tmp", b"1")  # a program that was killed during the proof
    assert any_store.empty()


@pytest.mark.parametrize("size", [10, 1 << 20])
def test_outputs_are_read_back_with_random_access(any_store: Store, size: int) -> None:
    data = b"0123456789" * (size // 10)
    with any_store.open_output("d/data") as sink:
        sink.write(data)
    with any_store.open_input("d/data") as source:
        assert source.size() == len(data)
        source.seek(4)
        assert bytes(source.read(3)) == data[4:7]


def test_an_output_that_fails_leaves_nothing(any_store: Store) -> None:
    def fail() -> None:
        with any_store.open_output("d/data") as sink:
            sink.write(b"half")
            raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011 - the body's own error passes through
        fail()
    assert not any_store.exists("d/data")


def test_a_missing_data_file_is_definite(any_store: Store) -> None:
    with pytest.raises(Definite) as raised, any_store.open_input("gone"):
        pass
    assert raised.value.code == "LAKE_FILE_MISSING"


def test_sync_takes_files_at_any_depth(any_store: Store) -> None:
    any_store.put("a/b/c", b"1")
    any_store.sync(["a/b/c"])
    any_store.sync_all()


def test_sync_reaches_each_file_and_every_folder_above_it(
    local_store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    local_store.put("a/b/c", b"1")
    synced: set[str] = set()
    real = os.fsync

    def note(handle: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{handle}"))
        real(handle)

    monkeypatch.setattr(os, "fsync", note)
    local_store.sync(["a/b/c"])
    root = local_store.path
    assert synced == {root, f"{root}/a", f"{root}/a/b", f"{root}/a/b/c"}


def test_a_full_disk_is_transient_and_names_no_path_outside_the_lake(local_store: LocalStore) -> None:
    local_store.put("file", b"")
    with pytest.raises(Transient) as raised:
        local_store.put("file/below", b"")
    assert raised.value.code == "LAKE_STORE"
    assert local_store.path not in str(raised.value)


@pytest.mark.parametrize(
    ("where", "ours", "foreign"),
    [
        ("s3://bucket/lake", {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "canary"}, "AWS_CA_BUNDLE"),
        ("gs://bucket/lake", {"GOOGLE_SERVICE_ACCOUNT_KEY": ACCOUNT}, "GOOGLE_CLOUD_PROJECT"),
        (
            "az://bucket/lake",
            {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "Y2FuYXJ5"},
            "AZURE_CONFIG_DIR",
        ),
    ],
)
def test_settings_from_the_environment_go_along_and_are_never_shown(
    monkeypatch: pytest.MonkeyPatch, where: str, ours: dict[str, str], foreign: str
) -> None:
    for name, value in {**ours, foreign: "elsewhere"}.items():
        monkeypatch.setenv(name, value)
    last, secret = list(ours.items())[-1]
    store = open_store(where, {"timeout": "1s"})
    assert store.storage_options == {**ours, "timeout": "1s"}
    assert secret not in repr(store)
    again = open_store(store.url, store.storage_options)
    assert (again.url, again.storage_options) == (store.url, store.storage_options)
    assert open_store(where, {last: ours[last]}).storage_options[last] == secret


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("s3://bucket/lake", {"AWS_REGION": "us-east-1", "AWS_SECRET_ACCESS_KEY": "canary"}),
        ("gs://bucket/lake", {"GOOGLE_SERVICE_ACCOUNT_KEY": "canary"}),
        ("gs://bucket/lake", {"GOOGLE_APPLICATION_CREDENTIALS": "/canary/none.json"}),
        ("az://container/lake", {"AZURE_STORAGE_ACCOUNT_KEY": "Y2FuYXJ5"}),
        ("az://container/lake", {"AZURE_STORAGE_ACCOUNT_NAME": "a", "AZURE_STORAGE_ACCOUNT_KEY": "canary!"}),
    ],
)
def test_half_of_the_credentials_are_refused_without_showing_them(
    monkeypatch: pytest.MonkeyPatch, where: str, options: dict[str, str]
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
    with pytest.raises(Misconfigured) as raised:
        open_store(where, options)
    assert raised.value.code == "LAKE_BUCKET_SETTINGS"
    assert "canary" not in str(raised.value)


@pytest.mark.parametrize(
    ("where", "url"),
    [
        ("s3a://bucket/x/", "s3://bucket/x"),
        ("gs://bucket", "gs://bucket"),
        ("az://c/x", "abfss://c@acc.dfs.core.windows.net/x"),
        ("abfs://c@other.dfs.core.windows.net/x", "abfss://c@other.dfs.core.windows.net/x"),
    ],
)
def test_an_address_has_one_spelling(where: str, url: str) -> None:
    options = {"AZURE_STORAGE_ACCOUNT_NAME": "acc"} if where.startswith("a") else {}
    assert open_store(where, {"AWS_REGION": "us-east-1"} | options).url == url


@pytest.mark.parametrize(
    "where",
    [
        *("gcs://bucket/x", "hdfs://name/x", "s3://", "gs:///x", "gs://user@bucket/x", "lakes/a%20b"),
        *("abfss://c@example.com/x", "abfss://c@.dfs.core.windows.net/x", "abfss://@a.dfs.core.windows.net"),
    ],
)
def test_addresses_that_cannot_hold_a_lake_are_refused(where: str) -> None:
    with pytest.raises(Misconfigured) as raised:
        open_store(where)
    assert raised.value.code == "LAKE_URL"


def test_a_bucket_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open, "find_spec", lambda _: None)
    with pytest.raises(Misconfigured) as raised:
        open_store("gs://bucket/lake")
    assert raised.value.code == "LAKE_BUCKET_EXTRA"


def test_a_file_url_is_a_directory(tmp_path: Path) -> None:
    assert open_store(f"file://{tmp_path}/x").url == f"{tmp_path}/x"


def test_arrow_reads_an_input_of_any_store(any_store: Store) -> None:
    with (
        any_store.open_output("t.arrow") as sink,
        pa.ipc.new_file(sink, pa.schema([("a", pa.int64())])) as file,
    ):
        file.write_table(pa.table({"a": [1, 2]}))
    with any_store.open_input("t.arrow") as source:
        assert pa.ipc.open_file(pa.BufferReader(bytes(source.read()))).read_all().num_rows == 2
