"""A small Google Cloud Storage on loopback: the part of its XML API that delta-rs, obstore and Polars use.

    with gcs(buckets=("lakes",)) as server:
        open_store("gs://lakes/shop", server.options)

Objects live in memory. Each write makes a new generation; `x-goog-if-generation-match` decides, under one
lock, whether a write happens (412 if not). Lists come in pages, with folders. Uploads in parts, ranges and
deletions work as Google's documents say. Requests must bear a token that the service account's own key has
signed, or they are refused with 401. `ignores_conditions` makes a server that writes whatever the condition
says, as some gateways do. Needs the package `cryptography`; only tests come here.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

_ACCOUNT = "mirror@tests.iam.gserviceaccount.com"
_PAGE = 1000
_DATE = "%a, %d %b %Y %H:%M:%S GMT"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The bytes of one object, its generation, and when it was written."""

    data: bytes
    generation: int
    written: float


@dataclass
class Storage:
    """The objects of all buckets, and the uploads under way; `lock` guards each change."""

    buckets: dict[str, dict[str, StoredObject]]
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    ignores_conditions: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)
    _numbers: Iterator[int] = field(default_factory=partial(itertools.count, 1))

    def write(self, bucket: str, key: str, data: bytes, condition: str | None) -> StoredObject | None:
        """Write an object; None if it has another generation than the condition says (0: is absent)."""
        with self.lock:
            objects = self.buckets[bucket]
            now = objects[key].generation if key in objects else 0
            if condition is not None and int(condition) != now and not self.ignores_conditions:
                return None
            objects[key] = made = StoredObject(data, next(self._numbers), time.time())
            return made

    def begin_upload(self) -> str:
        """Begin an upload in parts; its name."""
        with self.lock:
            name = f"upload-{next(self._numbers)}"
            self.uploads[name] = {}
            return name


@dataclass(frozen=True)
class GcsServer:
    """A server that runs: its address, what it holds, and the options with which a client reaches it."""

    url: str
    storage: Storage
    key: rsa.RSAPrivateKey = field(repr=False)

    @property
    def options(self) -> dict[str, str]:
        """Options for delta-rs, obstore and Polars, also as variables of the environment."""
        pem = self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        account = {
            "type": "service_account",
            "private_key": pem.decode(),
            "private_key_id": "tests",
            "client_email": _ACCOUNT,
            "gcs_base_url": self.url,
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}


@contextmanager
def gcs(buckets: Sequence[str], *, ignores_conditions: bool = False) -> Iterator[GcsServer]:
    """Run a server with these buckets, all of them empty."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    storage = Storage({name: {} for name in buckets}, ignores_conditions=ignores_conditions)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, storage, key.public_key()))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield GcsServer(f"http://127.0.0.1:{server.server_port}", storage, key)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    """One connection. The address is `/bucket/key`, as in Google's path-style XML API."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, storage: Storage, key: rsa.RSAPublicKey, *rest: Any) -> None:
        self._storage, self._key = storage, key
        super().__init__(*rest)

    def handle_one_request(self) -> None:
        """Carry out a request; a client that has gone needs no answer."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._carry_out()

    do_HEAD = do_PUT = do_POST = do_DELETE = do_GET

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on the console."""

    def _carry_out(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
        if not _is_signed(self.headers.get("Authorization", ""), self._key):
            self._refuse(401, "AuthenticationRequired")
        elif bucket not in self._storage.buckets:
            self._refuse(404, "NoSuchBucket")
        elif not key:
            self._answer(200, _listing(self._storage.buckets[bucket], query))
        elif self.command in ("PUT", "POST"):
            self._write(bucket, key, body, query)
        elif self.command == "DELETE":
            self._delete(bucket, key, query)
        else:
            self._read(bucket, key)

    def _write(self, bucket: str, key: str, body: bytes, query: dict[str, str]) -> None:
        if "uploads" in query:
            name = self._storage.begin_upload()
            self._answer(200, _element("InitiateMultipartUploadResult", UploadId=name))
            return
        upload = query.get("uploadId")
        if upload is not None and upload not in self._storage.uploads:
            self._refuse(404, "NoSuchUpload")
            return
        if upload is not None and "partNumber" in query:
            self._storage.uploads[upload][int(query["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"{query["partNumber"]}"'})
            return
        if upload is not None:
            parts = self._storage.uploads.pop(upload)
            body = b"".join(parts[number] for number in _numbers(body))
        made = self._storage.write(bucket, key, body, self.headers.get("x-goog-if-generation-match"))
        if made is None:
            self._refuse(412, "PreconditionFailed")
        elif upload is not None:
            tag = _etag(made)
            self._answer(200, _element("CompleteMultipartUploadResult", ETag=tag), _headers(made))
        else:
            self._answer(200, b"", _headers(made))

    def _delete(self, bucket: str, key: str, query: dict[str, str]) -> None:
        if "uploadId" in query:
            self._storage.uploads.pop(query["uploadId"], None)
            self._answer(204)
            return
        with self._storage.lock:
            gone = self._storage.buckets[bucket].pop(key, None)
        if gone is None:
            self._refuse(404, "NoSuchKey")
        else:
            self._answer(204)

    def _read(self, bucket: str, key: str) -> None:
        found = self._storage.buckets[bucket].get(key)
        if found is None:
            self._refuse(404, "NoSuchKey")
            return
        wanted = self.headers.get("Range")
        if wanted is None:
            self._answer(200, found.data, _headers(found))
            return
        first, _, last = wanted.removeprefix("bytes=").partition("-")
        size = len(found.data)
        start = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if start >= size:
            self._refuse(416, "InvalidRange")
            return
        said = {"Content-Range": f"bytes {start}-{end - 1}/{size}"}
        self._answer(206, found.data[start:end], _headers(found) | said)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, _element("Error", Code=code))

    def _answer(self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _listing(objects: dict[str, StoredObject], query: dict[str, str]) -> bytes:
    """A page of a list: keys behind the token, and folders once where a delimiter was given."""
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    after = query.get("continuation-token") or query.get("start-after", "")
    limit = min(int(query.get("max-keys", _PAGE)), _PAGE)
    items: dict[str, str] = {}
    for key in sorted(key for key in list(objects) if key.startswith(prefix)):
        head, found, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
        name = prefix + head + found if found else key
        if name > after and name not in items:
            items[name] = _folder(name) if found else _entry(key, objects.get(key))
    page = list(items.items())[:limit]
    more = "true" if len(items) > limit else "false"
    end = f"<NextContinuationToken>{escape(page[-1][0])}</NextContinuationToken>" if more == "true" else ""
    text = "".join(entry for _, entry in page)
    return f"<ListBucketResult><IsTruncated>{more}</IsTruncated>{end}{text}</ListBucketResult>".encode()


def _folder(name: str) -> str:
    return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"


def _entry(key: str, found: StoredObject | None) -> str:
    if found is None:
        return ""  # deleted meanwhile
    when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(found.written))
    return (
        f"<Contents><Key>{escape(key)}</Key><Generation>{found.generation}</Generation><ETag>{_etag(found)}"
        f"</ETag><LastModified>{when}</LastModified><Size>{len(found.data)}</Size></Contents>"
    )


def _etag(found: StoredObject) -> str:
    return f'"{found.generation:032x}"'


def _headers(found: StoredObject) -> dict[str, str]:
    return {
        "ETag": _etag(found),
        "x-goog-generation": str(found.generation),
        "Last-Modified": time.strftime(_DATE, time.gmtime(found.written)),
    }


def _element(name: str, **children: str) -> bytes:
    inner = "".join(f"<{child}>{escape(text)}</{child}>" for child, text in children.items())
    return f"<?xml version='1.0' encoding='UTF-8'?><{name}>{inner}</{name}>".encode()


def _numbers(body: bytes) -> list[int]:
    """The numbers of the parts, in the order in which they make the object."""
    elements = ElementTree.fromstring(body).iter()
    return [int(each.text or 0) for each in elements if each.tag.rpartition("}")[2] == "PartNumber"]


def _is_signed(authorization: str, key: rsa.RSAPublicKey) -> bool:
    """Tell whether the service account signed this token, and it is still good."""
    signed, _, signature = authorization.removeprefix("Bearer ").rpartition(".")
    try:
        key.verify(_unpad(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    claims = json.loads(_unpad(signed.partition(".")[2]))
    return bool(claims["iss"] == _ACCOUNT and claims["exp"] > time.time())


def _unpad(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
