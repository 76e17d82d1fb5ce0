"""The cutting proxy, in front of a real server: each way to break is seen by client and server."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest

from headrace_testing.postgres import Database
from headrace_testing.postmaster import wait_for
from headrace_testing.proxy import Proxy
from headrace_testing.stopwatch import least_seconds

pytestmark = pytest.mark.server


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with Proxy(database.server.host, database.server.port) as made:
        yield made


def connect(database: Database, proxy: Proxy) -> psycopg.Connection[tuple[object, ...]]:
    return psycopg.connect(database.url(user="app", port=proxy.port), autocommit=True)


def sessions(database: Database) -> int:
    """Sessions of `app` that the server itself still believes in."""
    return int(database.execute("SELECT count(*) FROM pg_stat_activity WHERE usename = 'app'")[0][0])


def answers_within(connection: psycopg.Connection[tuple[object, ...]], seconds: float) -> bool:
    """Ask once; whether the answer came before the deadline."""
    done = threading.Event()

    def ask() -> None:
        # Its connection is broken for good when the proxy closes.
        with contextlib.suppress(psycopg.OperationalError):
            connection.execute("SELECT 1")
            done.set()

    threading.Thread(target=ask, daemon=True).start()
    return done.wait(seconds)


def test_a_session_passes_and_is_counted(database: Database, proxy: Proxy) -> None:
    with connect(database, proxy) as connection:
        rows = connection.execute("SELECT repeat('x', 1000000)").fetchall()
        assert len(str(rows[0][0])) == 1_000_000
        assert proxy.open_links == 1
    assert proxy.counts.connections == 1
    wait_for(lambda: proxy.open_links == 0, "the link closes after its client")
    assert proxy.counts.bytes_to_client > 1_000_000
    wait_for(lambda: sessions(database) == 0, "the server's session ends")


def test_a_cut_resets_both_ends_and_new_connections_pass(database: Database, proxy: Proxy) -> None:
    connection = connect(database, proxy)
    proxy.cut()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    wait_for(lambda: sessions(database) == 0, "the server's session ends")
    with connect(database, proxy) as again:
        assert again.execute("SELECT 1").fetchall() == [(1,)]


def test_a_cut_is_a_reset_not_an_orderly_end(database: Database, proxy: Proxy) -> None:
    with socket.create_connection((proxy.host, proxy.port)) as client:
        wait_for(lambda: proxy.open_links == 1, "the link stands")
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            client.recv(1)


def test_a_stalled_connection_goes_on_where_it_stood(database: Database, proxy: Proxy) -> None:
    with connect(database, proxy) as connection:
        proxy.stall()
        waiting = threading.Event()
        answer: list[object] = []

        def ask() -> None:
            waiting.set()
            answer.extend(connection.execute("SELECT 42").fetchall())

        thread = threading.Thread(target=ask)
        thread.start()
        waiting.wait(5)
        thread.join(0.3)
        assert thread.is_alive()
        assert sessions(database) == 1
        proxy.resume()
        thread.join(10)
        assert answer == [(42,)]


def test_half_open_is_silence_for_the_client_and_the_end_for_the_server(
    database: Database, proxy: Proxy
) -> None:
    with socket.create_connection((proxy.host, proxy.port)) as client:
        wait_for(lambda: proxy.open_links == 1, "the link stands")
        proxy.half_open()
        client.settimeout(0.3)
        client.sendall(b"anybody there?")
        with pytest.raises(TimeoutError):
            client.recv(1)
    connection = connect(database, proxy)
    wait_for(lambda: sessions(database) == 1, "the server has the session")
    proxy.half_open()
    wait_for(lambda: sessions(database) == 0, "the server's session ends")
    assert not answers_within(connection, 0.3)
    with connect(database, proxy) as again:
        assert again.execute("SELECT 1").fetchall() == [(1,)]


def test_a_delay_makes_every_answer_late_but_not_a_large_one_much_later(
    database: Database, proxy: Proxy
) -> None:
    with connect(database, proxy) as connection:
        proxy.delay(0.2)
        assert 0.4 <= least_seconds(lambda: connection.execute("SELECT 1")) < 2.0
        # Sixteen chunks: were each of them delayed after the other, it would take over three seconds.
        assert least_seconds(lambda: connection.execute("SELECT repeat('x', 262144)")) < 2.5


def test_a_throttled_connection_trickles(database: Database, proxy: Proxy) -> None:
    with connect(database, proxy) as connection:
        proxy.throttle(100_000)
        assert 0.5 <= least_seconds(lambda: connection.execute("SELECT repeat('x', 60000)"), 1) < 5.0
        proxy.throttle(None)
        assert least_seconds(lambda: connection.execute("SELECT repeat('x', 2000000)")) < 5.0


def test_what_goes_to_a_client_is_altered_on_new_connections_until_that_is_healed(
    database: Database, proxy: Proxy
) -> None:
    def said(connection: psycopg.Connection[tuple[object, ...]]) -> object:
        return connection.execute("SELECT 'hel' || 'lo'").fetchall()[0][0]

    with connect(database, proxy) as before:
        proxy.alter(lambda chunks: (chunk.replace(b"hello", b"jello") for chunk in chunks))
        with connect(database, proxy) as altered:
            assert (said(before), said(altered)) == ("hello", "jello")
            proxy.heal()
            with connect(database, proxy) as healed:
                assert (said(altered), said(healed)) == ("jello", "hello")


def test_a_connection_ends_in_order_where_the_bytes_for_its_client_do(
    database: Database, proxy: Proxy
) -> None:
    connection = connect(database, proxy)
    proxy.alter(lambda chunks: iter([next(chunks) + b"and no more"]))
    with socket.create_connection((proxy.host, proxy.port)) as client:
        client.sendall(bytes([0, 0, 0, 8, 4, 210, 22, 47]))  # may this be TLS? The answer is a letter.
        found = b"".join(iter(lambda: client.recv(100), b""))
        assert found in (b"Nand no more", b"Sand no more")
    wait_for(lambda: proxy.open_links == 1, "the link closes after its client")
    assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_refusal_leaves_open_connections_alone(database: Database, proxy: Proxy) -> None:
    with connect(database, proxy) as connection:
        proxy.refuse()
        with pytest.raises(psycopg.OperationalError, match="refused"):
            connect(database, proxy)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]
        proxy.heal()
        connect(database, proxy).close()


def test_a_crash_of_the_server_is_seen_through_the_proxy(database: Database, proxy: Proxy) -> None:
    connection = connect(database, proxy)
    database.server.crash()
    with pytest.raises(psycopg.OperationalError):
        connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        connect(database, proxy)
    assert proxy.counts.refused_upstream == 1
    database.server.start()
    connect(database, proxy).close()
