"""A real server on loopback, and clients that mean well, are slow, rude or very many."""

from __future__ import annotations

import json
import select
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.lake.format.status import TableStatus
from headrace.web import server
from headrace.web.server import serving
from headrace.web.settings import settings
from headrace_testing.postmaster import wait_for
from tests.unit.web.lakes import RUNNING, a_lake, get, many_tables, port_of, raw, status_text

SETTINGS = settings("127.0.0.1:0")
PATHS = ["/metrics", "/readyz", "/api/status"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    return a_lake(tmp_path_factory.mktemp("lake"), RUNNING)


@pytest.fixture(scope="module")
def url(lake: str) -> Iterator[str]:
    with serving(SETTINGS, [lake]) as url:
        yield url


def test_each_path_answers_and_says_how_a_browser_shall_treat_it(url: str) -> None:
    for path in ["/healthz", *PATHS]:
        answer = get(url, path)
        assert answer.status == 200, path
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'"), path
        assert answer.headers["X-Content-Type-Options"] == "nosniff", path
        assert "Set-Cookie" not in answer.headers
    assert get(url, "/healthz").body == b"ok\n"
    status = get(url, "/api/status").record["main"]
    assert status["state"] == "running"
    assert (
        status["tables"]["public.orders"]["error"]["hint"]
        == "headrace tables resync --lake ./lake public.orders"
    )


def test_head_brings_the_headers_alone(url: str) -> None:
    whole, head = get(url, "/metrics"), get(url, "/metrics", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    assert abs(int(head.headers["Content-Length"]) - len(whole.body)) < 20


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
def test_nothing_but_get_and_head_is_answered(url: str, method: str) -> None:
    answer = get(url, "/metrics", method=method)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "127.0.0.2", "localhost.evil.example"])
def test_another_hosts_name_is_refused(url: str, host: str) -> None:
    for path in ["/healthz", *PATHS]:
        answer = get(url, path, {"Host": host})
        assert (answer.status, answer.record["code"]) == (421, "WEB_HOST")


def test_loopback_names_and_those_of_the_settings_are_ours(lake: str) -> None:
    with serving(settings("127.0.0.1:0", hosts=["Mirror.Example"]), [lake]) as url:
        for host in ("localhost", f"127.0.0.1:{port_of(url)}", "[::1]:1", "mirror.example:80"):
            assert get(url, "/metrics", {"Host": host}).status == 200


@pytest.mark.parametrize(
    "path",
    ["/../pyproject.toml", "/assets/../../status.py", "/assets/%2e%2e/site.py", "//etc/passwd", "/etc/passwd",
     "/_headrace/format.json", "/%00", "/metrics/", "/api"],
)  # fmt: skip
def test_no_path_reaches_a_file(url: str, path: str) -> None:
    answer = get(url, path)
    assert (answer.status, answer.record["code"]) == (404, "WEB_PATH")


def test_a_token_is_asked_for_everywhere_but_at_healthz(lake: str) -> None:
    with serving(settings("127.0.0.1:0", token="a-long-token"), [lake]) as url:
        assert get(url, "/healthz").status == 200
        for path in ["/", *PATHS]:
            for shown in (
                "",
                "Bearer",
                "Bearer a-long-toke",
                "Basic a-long-token",
                "Bearer a-long-token\xe4",
            ):
                answer = get(url, path, {"Authorization": shown} if shown else {})
                assert (answer.status, answer.headers["WWW-Authenticate"]) == (401, "Bearer"), (path, shown)
                assert "a-long-token" not in answer.text
        assert get(url, "/metrics", {"Authorization": "bearer a-long-token"}).status == 200


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: other\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: y\nContent-Length: 5\r\n\r\nhello", 400),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX: y\0\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n", 421),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nhello", 413),
        (b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 600 + b"\r\n\r\n", 400),
    ],
)  # fmt: skip
def test_a_request_that_is_none_is_refused_and_the_connection_closed(
    url: str, sent: bytes, status: int
) -> None:
    try:
        found = raw(url, sent)
    except (ConnectionResetError, BrokenPipeError):
        assert status == 431  # we close while the client still sends
    else:
        assert found.startswith(b"HTTP/1.1 %d " % status)
    assert get(url, "/healthz").status == 200


def test_a_connection_takes_one_request_after_another_also_at_once(url: str) -> None:
    one = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = one.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    found = raw(url, one * 20 + last)
    assert found.count(b"HTTP/1.1 200 OK") == 21
    assert raw(url, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n").count(b"200 OK") == 1


def test_slow_heads_and_clients_that_never_read_are_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HEAD_SECONDS", "IDLE_SECONDS", "BODY_SECONDS"):
        monkeypatch.setattr(server, name, 0.5)
    with serving(SETTINGS, [a_lake(tmp_path, many_tables(5000))]) as url, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port_of(url)))) for _ in range(3)]
        slow[0].sendall(b"GET /metrics HTTP/1.1\r\nHost: lo")
        slow[1].setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        slow[1].sendall(
            b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20
        )  # more than the system buffers
        begun = time.monotonic()
        assert get(url, "/healthz").status == 200
        assert time.monotonic() - begun < 0.4
        for client in (slow[0], slow[2]):
            client.settimeout(10)
            assert client.recv(1) == b""
        _wait_for_reset(slow[1])


def _wait_for_reset(client: socket.socket) -> None:
    """The server gives up on a body that nobody reads, amid it."""
    poll = select.poll()
    poll.register(client, 0)  # of errors and the end one hears anyway
    assert poll.poll(10_000), "the connection is still there"


def test_with_more_connections_than_there_is_room_for_the_newest_is_served(url: str) -> None:
    with ExitStack() as stack:
        for _ in range(server.MAX_CONNECTIONS + 200):
            stack.enter_context(socket.create_connection(("127.0.0.1", port_of(url))))
        answer = get(url, "/metrics")
    assert answer.status == 200


def test_clients_that_never_read_do_not_keep_others_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 4)
    with serving(SETTINGS, [a_lake(tmp_path, many_tables(5000))]) as url, ExitStack() as stack:
        for _ in range(4):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", port_of(url))))
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)
            assert client.recv(1)  # it is answered by now
        assert get(url, "/healthz").status == 200


def test_a_lake_that_vanishes_and_comes_back_is_told(tmp_path: Path) -> None:
    lake = a_lake(tmp_path / "lake", RUNNING)
    with serving(SETTINGS, [lake]) as url:
        assert get(url, "/readyz").status == 200
        (tmp_path / "lake").rename(tmp_path / "away")
        _until(url, "/readyz", 503)
        answer = get(url, "/readyz").record
        assert [reason["code"] for reason in answer["reasons"]] == ["LAKE_ABSENT"]
        assert f'headrace_lake_up{{lake="{lake}"}} 0' in get(url, "/metrics").text
        assert get(url, "/api/status").record["code"] == "LAKE_ABSENT"
        (tmp_path / "away").rename(tmp_path / "lake")
        _until(url, "/readyz", 200)


def _until(url: str, path: str, status: int) -> None:
    wait_for(lambda: get(url, path).status == status, f"{path} answers {status}")


def test_what_keeps_a_source_from_being_ready_is_told(tmp_path: Path) -> None:
    position = RUNNING.position
    assert position is not None
    cases = {
        "STATUS_BEHIND": replace(
            RUNNING, position=replace(position, waiting_since="2026-01-01T00:00:00+00:00")
        ),
        "WEB_NOT_RUNNING": replace(RUNNING, state="waiting"),
        "WEB_COPYING": replace(RUNNING, tables={"public.new": TableStatus("pending")}),
        "PG_GONE": replace(RUNNING, state="failed", error={"code": "PG_GONE", "primary": "x", "hint": "y"}),
        "STATUS_NOT_RUNNING": replace(RUNNING, state="stopped"),
    }
    lakes = [a_lake(tmp_path / code, said) for code, said in cases.items()]
    killed = replace(RUNNING, state="waiting", error=cases["PG_GONE"].error)  # while it waited for its server
    lakes += [a_lake(tmp_path / "old", killed, age=20), a_lake(tmp_path / "none")]
    with serving(SETTINGS, lakes) as url:
        answer = get(url, "/readyz")
    assert answer.status == 503
    codes = [reason["code"] for reason in answer.record["reasons"]]
    assert codes == [*cases, "STATUS_NOT_RUNNING", "WEB_NO_SOURCE"]
    assert "PG_GONE: x" in answer.record["reasons"][-2]["detail"]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b'{"written_at": "2026-11-25T10:00:00+00:00", "rec',
        b"[]",
        b'{"written_at": 5, "record": {}}',
        b'{"written_at": "2026-11-25T10:00:00+00:00"}',
        b'{"written_at": "2026-11-25T10:00:00+00:00", "record": {"tables": {"a": 5}}}',
        b'{"written_at": "2999-11-25T10:00:00+00:00", "record": {"state": 7, '
        b'"position": {"lag_seconds": "x"}, "totals": {"steps": {"plan": {"counts": [1, 2], "seconds": 0}}, '
        b'"changes": "many", "marks": []}, '
        b'"tables": {"a": {"state": "a new word", "rows": "x", "new": 1}}, "later": {}}}',
        b'{"written_at": "2999-11-25T10:00:00+00:00", "record": {"state": "running"}}',
    ],
)  # fmt: skip
def test_a_status_of_another_release_or_half_of_one_stops_nothing(tmp_path: Path, text: bytes) -> None:
    lake = a_lake(tmp_path, RUNNING)
    status_text(lake, "main", text)
    with serving(SETTINGS, [lake]) as url:
        for path in PATHS:
            answer = get(url, path)
            assert answer.status in (200, 503), answer.text
            assert "WEB_FAULT" not in answer.text, answer.text
        assert "main" in get(url, "/api/status").record


def test_several_lakes_are_told_apart(tmp_path: Path) -> None:
    states = {"a": "running", "b": "stopped"}
    lakes = [a_lake(tmp_path / name, replace(RUNNING, state=state)) for name, state in states.items()]
    with serving(SETTINGS, lakes) as url:
        record = get(url, "/api/status").record
        text = get(url, "/metrics").text
    assert [record[lake]["main"]["state"] for lake in lakes] == ["running", "stopped"]
    assert f'headrace_up{{lake="{lakes[0]}",source="main"}} 1' in text
    assert f'headrace_up{{lake="{lakes[1]}",source="main"}} 0' in text


def test_a_thousand_tables_answer_at_once(tmp_path: Path) -> None:
    with serving(SETTINGS, [a_lake(tmp_path, many_tables(1000))]) as url:
        get(url, "/metrics")
        times = []
        for _ in range(3):
            threading.Event().wait(1.05)  # past what clients share
            begun = time.process_time()  # this process alone: others keep the machine busy
            body = get(url, "/metrics").body
            times.append(time.process_time() - begun)
    assert len(body) < 10 << 20
    assert min(times) <= 0.2


def test_the_answer_is_small_where_the_client_can_unpack_it(url: str) -> None:
    answer = get(url, "/metrics", {"Accept-Encoding": "gzip"})
    assert answer.headers["Content-Encoding"] == "gzip"
    assert len(answer.body) * 3 < len(get(url, "/metrics").body)
    assert json.loads(get(url, "/api/status").body)
