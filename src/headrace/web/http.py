"""HTTP/1.1 as far as a scraper, a browser and curl need it: a head in, a response out. Bytes only, no socket.

    b"GET /metrics HTTP/1.1\r\nHost: ...\r\n\r\n"  ──► HttpRequest("GET", "/metrics", {}, {...})
    Response(200, "text/plain", b"...")            ──► b"HTTP/1.1 200 OK\r\n...\r\n\r\n"

A request with a body is refused, because the body could be read as another request. A head has at most
`MAX_HEAD` bytes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote

from headrace.core.errors import HeadraceError, Misconfigured
from headrace.core.records import to_record

MAX_HEAD = 16 << 10
_MAX_HEADERS = 100
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+\Z")
_TARGET = re.compile(r"/[\x21-\x7e]*\Z")
_VALUE = re.compile(r"[^\x00\r\n]*\Z")  # no character that may end a line for a proxy
SAFE_HEADERS: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request without a body."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # by their names in lower case
    keep_alive: bool = True

    def header(self, name: str) -> str:
        return self.headers.get(name, "")


@dataclass(frozen=True, slots=True)
class Response:
    """A whole response; other clients may share its `body`, so nobody changes it."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def head(self, keep_alive: bool) -> bytes:
        """The status line and the headers, among them those that protect a browser."""
        headers = {
            "Content-Type": self.content_type,
            "Content-Length": str(len(self.body)),
            "Connection": "keep-alive" if keep_alive else "close",
            **SAFE_HEADERS,
            **self.headers,
        }
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


class BadRequest(Exception):
    """The head is bad: answer with a status and a code, then close the connection."""

    def __init__(self, status: int, error: HeadraceError) -> None:
        super().__init__(error.code)
        self.response = refusal(status, error)


def refusal(status: int, error: HeadraceError, **headers: str) -> Response:
    """The response that refuses a request, with the error's code."""
    return as_json(
        status, to_record(error), {name.replace("_", "-"): value for name, value in headers.items()}
    )


def as_json(status: int, value: Any, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return Response(status, "application/json; charset=utf-8", body, headers or {})


def parse(head: bytes) -> HttpRequest:
    """Parse a head without its empty line; raise `BadRequest` if it is malformed or has a body."""
    lines = head.decode("latin-1").split("\r\n")
    parts = lines[0].split(" ")
    if len(parts) != 3 or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise _malformed_error("the request is not one of HTTP/1.1")
    method, target, version = parts
    headers = _headers(lines[1:])
    if not _TARGET.match(target):
        raise _malformed_error("the request does not name a path")
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise BadRequest(
            413,
            Misconfigured("WEB_REQUEST_BODY", "a request has no body here", hint="send GET without a body"),
        )
    path, _, query = target.partition("?")
    try:
        asked = dict(parse_qsl(query, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise _malformed_error("the request asks for too much at once") from None
    wish = headers.get("connection", "").lower()
    keep_alive = "close" not in wish if version == "HTTP/1.1" else "keep-alive" in wish
    return HttpRequest(method, unquote(path), asked, headers, keep_alive)


def too_large() -> BadRequest:
    """The refusal of a head that is too long or has too many headers."""
    return BadRequest(
        431,
        Misconfigured(
            "WEB_REQUEST_LARGE",
            "the head of the request is too large",
            hint=f"send at most {MAX_HEAD} bytes and {_MAX_HEADERS} headers",
        ),
    )


def _malformed_error(primary: str) -> BadRequest:
    return BadRequest(
        400,
        Misconfigured(
            "WEB_REQUEST_MALFORMED", primary, hint="send GET PATH HTTP/1.1, as curl and browsers do"
        ),
    )


def _headers(lines: list[str]) -> dict[str, str]:
    if len(lines) > _MAX_HEADERS:
        raise too_large()
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not (colon and _TOKEN.match(name) and _VALUE.match(value)):
            raise _malformed_error("a header of the request is malformed")
        key = name.lower()
        # A proxy might obey the second Host or Authorization, and we the first.
        if key in headers and key in ("host", "authorization", "content-length"):
            raise _malformed_error("a header of the request comes twice")
        headers[key] = value.strip()
    return headers
