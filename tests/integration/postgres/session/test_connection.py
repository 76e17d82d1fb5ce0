"""Sessions on a real server: pinned whatever its defaults say, proved, and silent about secrets."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NoReturn

import pytest

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.sources.postgres.copy import copy_out
from headrace.sources.postgres.copy.copy_out import stream_copy
from headrace.sources.postgres.session import timeouts
from headrace.sources.postgres.session.address import PostgresAddress
from headrace.sources.postgres.session.connection import KEEPALIVES, PINS, connect, plain, replication
from headrace.sources.postgres.session.identity import identify, verify
from headrace.sources.postgres.session.statements import ask, ask_within, in_transaction, query
from headrace.sources.shared.refusals import Unreachable
from headrace_testing.ports import free_port
from headrace_testing.postgres import Database, Server, postgres
from headrace_testing.proxy import Proxy
from headrace_testing.tls import Certificates, issue
from tests.integration.postgres.pooler import pooler

pytestmark = pytest.mark.server

HOSTILE = {
    "datestyle": "'SQL, DMY'",
    "intervalstyle": "iso_8601",
    "extra_float_digits": "-5",
    "timezone": "'Asia/Kolkata'",
    "bytea_output": "escape",
    "xmlbinary": "hex",
    "search_path": "zz, public",
    "quote_all_identifiers": "on",
    "statement_timeout": "'1ms'",
    "lock_timeout": "'1ms'",
    "default_transaction_read_only": "on",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "client_encoding": "latin1",
}
VALUES = (
    "SELECT '2024-02-01 03:04:05.678+00'::timestamptz::text, '1y2d3h'::interval::text,"
    " (0.1::float8 * 3)::text, '\\x00ff'::bytea::text, '2024-02-01'::date::text, 'public.t'::regclass::text"
)
PRINTED = ("2024-02-01 03:04:05.678+00", "1 year 2 days 03:00:00", "0.30000000000000004", "\\x00ff")


def login(database: Database, **options: str) -> PostgresAddress:
    return PostgresAddress.parse(database.url(user="app", **options))


@pytest.fixture
def hostile(database: Database) -> Iterator[Database]:
    """A database whose defaults, and those of the user in it, print everything in another way."""
    database.execute("CREATE TABLE t (id int)")
    whose = (f'DATABASE "{database.name}"', f'ROLE app IN DATABASE "{database.name}"')
    for name, value in HOSTILE.items():
        for who in whose:
            database.server.execute(f"ALTER {who} SET {name} = {value}")
    yield database
    for who in whose:
        database.server.execute(f"ALTER {who} RESET ALL")


def test_hostile_defaults_change_nothing_on_either_kind_of_connection(
    hostile: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # libpq sends these in the startup packet, where they come after our options.
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")
    monkeypatch.setenv("PGDATESTYLE", "Postgres")
    monkeypatch.setenv("PGOPTIONS", "-c bytea_output=escape")
    expected = (*PRINTED, "2024-02-01", "public.t")
    address = login(hostile, options="-c extra_float_digits=0")
    with closing(connect(address, role="test")) as connection:
        assert query(connection, VALUES) == [expected]
    pgconn = replication(address, role="test")
    assert ask(pgconn, VALUES) == [expected]
    pgconn.finish()


def test_every_pin_holds_and_the_session_says_who_it_is(database: Database) -> None:
    with closing(connect(login(database), role="copy 1a2b3c4d")) as connection:
        for name, value in PINS.items():
            assert query(connection, "SELECT current_setting(%s)", [name]) == [(value,)]
        assert query(connection, "SHOW application_name") == [("headrace copy 1a2b3c4d",)]


def test_both_kinds_of_connection_prove_the_same_server(database: Database) -> None:
    address = login(database)
    with closing(connect(address, role="test")) as connection:
        identity = identify(connection)
    pgconn = replication(address, role="test")
    assert identify(pgconn) == identity
    ((system_id, timeline, _, name),) = ask(pgconn, "IDENTIFY_SYSTEM")
    pgconn.finish()
    assert (system_id, timeline, name) == (identity.system_id, str(identity.timeline), identity.database)
    assert identity.database == database.name
    assert not identity.standby


def test_another_database_of_the_same_server_is_refused(database: Database) -> None:
    with closing(connect(login(database), role="test")) as connection:
        expected = identify(connection)
    elsewhere = PostgresAddress.parse(database.server.url(user="app"))
    with closing(connect(elsewhere, role="test")) as connection, pytest.raises(Misconfigured) as caught:
        verify(identify(connection), expected)
    assert caught.value.code == "PG_ANOTHER_DATABASE"


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda db: db.url(user="app").replace("@127", "x@127"), "PG_PASSWORD_REFUSED"),
        (lambda db: db.url(user="app").replace(f"/{db.name}", "/nowhere"), "PG_DATABASE_UNKNOWN"),
        (lambda db: db.url().replace("postgres@", "nobody_here@"), "PG_PASSWORD_MISSING"),
        (lambda db: db.url(user="app", port=free_port()), "PG_UNREACHABLE"),
        (lambda db: db.url(user="app", host="host.invalid"), "PG_UNREACHABLE"),
        (lambda db: db.url(user="app", sslmode="require"), "PG_TLS_REFUSED"),
    ],
)
def test_a_login_that_cannot_be_is_a_coded_error_without_the_password(
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    spoil: Callable[[Database], str],
    code: str,
) -> None:
    monkeypatch.delenv("PGPASSWORD", raising=False)
    secret = database.server.password
    for kind in (connect, replication):
        with pytest.raises(HeadraceError) as caught:
            kind(PostgresAddress.parse(spoil(database)), role="test")
        assert caught.value.code == code
        assert secret not in str(caught.value)
        assert secret.split("/")[1] not in repr(caught.value)


def test_without_the_replication_attribute_a_replication_connection_is_refused(database: Database) -> None:
    database.execute("ALTER ROLE app NOREPLICATION")
    try:
        with pytest.raises(Misconfigured) as caught:
            replication(login(database), role="test")
        assert caught.value.code == "PG_REPLICATION_PRIVILEGE"
    finally:
        database.execute("ALTER ROLE app REPLICATION")


def test_a_pooler_behind_the_name_is_refused(database: Database) -> None:
    server = database.server
    with pooler(server.host, server.port) as port, pytest.raises(Misconfigured) as caught:
        connect(PostgresAddress.parse(database.url(port=port, sslmode="disable")), role="test")
    assert caught.value.code == "PG_POOLER"


@pytest.mark.parametrize("where", ["environment", "file", "service"])
def test_a_settled_address_needs_neither_environment_nor_files(
    database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    address = PostgresAddress.parse(database.url(user="app", password=""))
    bare = PostgresAddress.parse(str(address.conninfo).replace("password=''", ""))
    if where == "environment":
        monkeypatch.setenv("PGPASSWORD", database.server.password)
    elif where == "service":
        said = {**bare.parameters, "password": database.server.password, "sslmode": "disable"}
        services = tmp_path / "services"
        services.write_text("\n".join(["[shop]", *(f"{key}={value}" for key, value in said.items()), ""]))
        monkeypatch.setenv("PGSERVICEFILE", str(services))
        bare = PostgresAddress.parse("service=shop")
    else:
        passfile = tmp_path / "pass"
        passfile.write_text(f"*:*:*:app:{database.server.password}\n")
        passfile.chmod(0o600)
        monkeypatch.setenv("PGPASSFILE", str(passfile))
    with closing(connect(bare, role="test")) as connection:
        settled = bare.with_environment(connection)
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.delenv("PGPASSFILE", raising=False)
    monkeypatch.delenv("PGSERVICEFILE", raising=False)
    assert settled.parameters.get("sslmode") == ("disable" if where == "service" else None)
    assert database.server.password not in repr(settled)
    with closing(connect(settled, role="test")) as connection:
        assert query(connection, "SELECT current_user::text") == [("app",)]


def test_a_statement_that_waits_too_long_is_cancelled_and_the_connection_lives(database: Database) -> None:
    pgconn = replication(login(database), role="test")
    with pytest.raises(Transient) as caught:
        ask_within(pgconn, "SELECT pg_sleep(60)", 0.2)
    assert caught.value.code == "PG_STATEMENT_CANCELLED"
    assert ask_within(pgconn, "SELECT 1", 10) == [("1",)]
    pgconn.finish()


def test_a_cancellation_that_comes_before_its_statement_is_made_again(database: Database) -> None:
    """The server drops it; whoever stops a run then waited for as long as a slot may take to be made."""
    pgconn = plain(login(database), role="test")

    def stop() -> NoReturn:
        threading.Timer(0.3, os.kill, [pgconn.backend_pid, signal.SIGCONT]).start()
        raise Transient("RUN_STOPPED", "the run was stopped", hint="run again to go on")

    os.kill(pgconn.backend_pid, signal.SIGSTOP)  # it has yet to read the statement
    begun = time.monotonic()
    with pytest.raises(Transient) as stopped:
        ask_within(pgconn, "SELECT pg_sleep(20)", 60, stop)
    assert stopped.value.code == "RUN_STOPPED"
    assert time.monotonic() - begun < 15
    assert ask(pgconn, "SELECT 1") == [("1",)]
    pgconn.finish()


def test_whatever_waits_for_a_lock_is_ended_by_the_server(database: Database) -> None:
    database.execute(
        "ALTER ROLE app SET lock_timeout = 0; ALTER ROLE app SET synchronous_commit = remote_apply"
    )
    settings = ("lock_timeout", "client_connection_check_interval", "synchronous_commit")
    opened = [connect(login(database), role="test").pgconn, plain(login(database), role="test")]
    for pgconn in [*opened, replication(login(database), role="test")]:
        found = [ask(pgconn, f"SHOW {name}") for name in settings]
        assert found == [[("5s",)], [("10s",)], [("local",)]]
        pgconn.finish()
    database.execute("ALTER ROLE app RESET ALL")


def test_a_session_of_a_machine_that_is_gone_is_ended_by_the_server(database: Database) -> None:
    """Within half a minute, though it waits for us with a snapshot open: it asks whether we are there."""
    opened = [connect(login(database), role="test").pgconn, plain(login(database), role="test")]
    for pgconn in [*opened, replication(login(database), role="test")]:
        # What the server's system has for the socket, not what was asked for.
        idle, interval, count = (int(ask(pgconn, f"SHOW {name}")[0][0] or "0") for name in KEEPALIVES)
        assert 0 < idle + interval * count <= 30
        pgconn.finish()


def test_a_session_that_the_server_ends_is_a_lost_connection(database: Database) -> None:
    with closing(connect(login(database), role="test")) as connection:
        database.execute("SELECT pg_terminate_backend(%s)", [connection.info.backend_pid])
        with pytest.raises(Transient) as caught:
            query(connection, "SELECT 1")
    assert caught.value.code == "PG_CONNECTION_LOST"


def test_tls_is_verified_to_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = issue(_folder(tmp_path / "ours")), issue(_folder(tmp_path / "other"))
    hba = ["hostnossl all app all reject", "hostssl by_certificate app all cert"]
    with postgres(tls=ours, hba=hba) as server:
        server.execute("CREATE DATABASE by_certificate OWNER app")
        _needs_a_certificate(server, ours)

        def url(mode: str, root: Path) -> PostgresAddress:
            return PostgresAddress.parse(server.url(user="app", sslmode=mode, sslrootcert=str(root)))

        verified = url("verify-full", ours.authority)
        with closing(connect(verified, role="test")) as connection:
            assert connection.pgconn.ssl_in_use
        pgconn = replication(verified, role="test")
        assert pgconn.ssl_in_use
        pgconn.finish()
        monkeypatch.setattr(copy_out, "COPY_SECONDS", 1.0)
        copy, held = "COPY (SELECT generate_series(1, 4000000)) TO STDOUT", 0
        for piece in stream_copy(plain(verified, role="test"), copy):
            # What is done with a piece, however long it takes, is no silence of the server's.
            assert not timeouts._watch._waits
            held += len(piece)
        assert held == sum(9 * 10**digits * (digits + 2) for digits in range(6)) + 3000001 * 8
        with Proxy(server.host, server.port) as proxy:
            address = PostgresAddress.parse(server.url(user="app", sslmode="require", port=proxy.port))
            rows = stream_copy(plain(address, role="test"), copy)
            assert next(rows).tobytes().startswith(b"1\n2\n")
            proxy.half_open()
            with pytest.raises(Transient) as lost:  # libpq's own wait would keep the watch from ending it
                sum(map(len, rows))
            assert lost.value.code == "PG_CONNECTION_LOST"
        for length in (0, 1, 300):  # before the handshake, and amid it
            with Proxy(server.host, server.port) as proxy:
                proxy.alter(partial(_first, length))
                with pytest.raises(Unreachable):
                    connect(
                        PostgresAddress.parse(server.url(sslmode="require", port=proxy.port)), role="test"
                    )
        with pytest.raises(Misconfigured) as caught:
            connect(url("verify-full", other.authority), role="test")
        assert caught.value.code == "PG_TLS_REFUSED"
        with pytest.raises(Misconfigured) as caught:
            connect(url("disable", ours.authority), role="test")
        assert caught.value.code == "PG_NOT_ADMITTED"


def _needs_a_certificate(server: Server, files: Certificates) -> None:
    """Log in by a client's certificate, with no password, also from another process."""
    root = str(files.authority)
    where = server.url("by_certificate", user="app", password="", sslmode="verify-full", sslrootcert=root)
    pair = f"&sslcert={files.client_certificate}&sslkey={files.client_key}"
    address = PostgresAddress.parse(where + pair)
    with closing(connect(address, role="test")) as connection:
        elsewhere = PostgresAddress.parse(address.with_environment(connection).text)
    connect(elsewhere, role="test").close()
    with pytest.raises(Misconfigured) as caught:
        connect(PostgresAddress.parse(where), role="test")
    assert caught.value.code == "PG_TLS_REFUSED"


def _first(length: int, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Let so many bytes of the server's pass, then end."""
    for chunk in chunks:
        if length:
            yield chunk[:length]
        length = max(0, length - len(chunk))
        if not length:
            return


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def test_a_connection_that_is_lost_at_commit_is_told_as_any_other(database: Database) -> None:
    with closing(connect(login(database), role="test")) as session:
        opened = in_transaction(session)
        opened.__enter__()
        database.execute("SELECT pg_terminate_backend(%s)", [session.info.backend_pid])
        with pytest.raises(Transient) as lost:
            opened.__exit__(None, None, None)
        assert lost.value.code == "PG_CONNECTION_LOST"


def named(database: Database, hosts: str, **options: str) -> PostgresAddress:
    """The address by names, which this machine's resolver does not know."""
    ports = ",".join([str(database.server.port)] * len(hosts.split(",")))
    said = {**login(database).parameters, "host": hosts, "port": ports, **options}
    return PostgresAddress.parse(" ".join(f"{key}={value}" for key, value in said.items()))


def test_a_name_is_resolved_without_libpq_and_each_of_its_addresses_is_tried(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(host: str, port: str, **_kind: object) -> list[tuple[object, ...]]:
        asked.append(host)
        if host == "gone.test":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(0, 0, 0, "", (address, int(port))) for address in ("127.0.0.9", "127.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    with closing(connect(named(database, "gone.test,db.test"), role="test")) as session:
        assert (session.info.host, session.info.hostaddr) == ("db.test", "127.0.0.1")
    assert asked == ["gone.test", "db.test"]
    pgconn = replication(named(database, "db.test"), role="test")
    pgconn.finish()
    with pytest.raises(Unreachable) as caught:
        connect(named(database, "gone.test"), role="test")
    assert "gone.test" in str(caught.value.detail)


def test_what_can_be_no_name_of_a_host_is_refused_at_once(database: Database) -> None:
    with pytest.raises(Unreachable) as caught:
        connect(named(database, "db..test", connect_timeout="30"), role="test")
    assert caught.value.detail == '"db..test" is no name of a host'


def test_a_name_server_that_never_answers_is_given_up_and_keeps_no_thread_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    over, asked = threading.Event(), list[str]()

    def silent(host: str, port: str, **_kind: object) -> list[tuple[object, ...]]:
        asked.append(host)
        over.wait(60)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", silent)
    try:
        for _ in range(2):
            with pytest.raises(Unreachable) as caught:
                connect(named(database, "silent.test", connect_timeout="1"), role="test")
            assert "within 1 s" in str(caught.value.detail)
        assert asked == ["silent.test"], "who asks again waits for the same answer"
    finally:
        over.set()
