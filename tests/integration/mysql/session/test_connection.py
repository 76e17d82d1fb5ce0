"""Sessions on real servers of both kinds: pinned whatever their defaults say, silent about secrets."""

from __future__ import annotations

import socket
import threading
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from headrace.core.errors import HeadraceError, Misconfigured, Transient
from headrace.sources.mysql.session import connection as connections
from headrace.sources.mysql.session import login
from headrace.sources.mysql.session.address import MysqlAddress, SslMode
from headrace.sources.mysql.session.connection import connect, pins
from headrace.sources.mysql.session.statements import query
from headrace_testing.mysql import Database, Server, mariadb, mysql
from headrace_testing.postmaster import wait_for
from headrace_testing.tls import issue

pytestmark = pytest.mark.server

HOSTILE = {
    "time_zone": "+05:30",
    "sql_mode": "ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,PAD_CHAR_TO_FULL_LENGTH",
    "lock_wait_timeout": 1,
    "net_write_timeout": 1,
    "wait_timeout": 1,
    "sql_select_limit": 1,
    "max_join_size": 1,
    "sql_auto_is_null": 1,
    "group_concat_max_len": 4,
    "div_precision_increment": 0,
    "lc_time_names": "de_DE",
    "autocommit": 0,
    "completion_type": "RELEASE",
}
HOSTILE_OF = {
    "mysql": {
        "transaction_isolation": "READ-UNCOMMITTED",
        "max_execution_time": 1,
        "show_gipk_in_create_table_and_information_schema": 0,
    },
    "mariadb": {
        "tx_isolation": "READ-UNCOMMITTED",
        "max_statement_time": 0.1,
        "old_mode": "",
        "idle_transaction_timeout": 1,
    },
}
# Of every session that is no administrator's. What it leaves open would show a state of then.
INIT_CONNECT = (
    "SET NAMES latin1, sql_mode = 'ANSI', time_zone = '-03:00', sql_select_limit = 0;"
    " START TRANSACTION WITH CONSISTENT SNAPSHOT"
)


def address_of(database: Database, **options: str) -> MysqlAddress:
    return MysqlAddress.parse(database.url(user="app", **options))


def test_hostile_defaults_change_nothing(database: Database) -> None:
    server = database.server
    hostile = {**HOSTILE, **HOSTILE_OF[server.flavour.name]}
    first = {name: server.execute(f"SELECT @@global.{name}")[0][0] for name in [*hostile, "init_connect"]}
    admin = server.connect()
    try:
        with admin.cursor() as cursor:
            for name, value in hostile.items():
                cursor.execute(f"SET GLOBAL {name} = %s", [value])
            cursor.execute("SET GLOBAL init_connect = %s", [INIT_CONNECT])
        with connect(address_of(database), role="test") as session:
            for name, value in pins(session.release).items():
                [(found,)] = query(session, f"SELECT @@session.{name}")
                assert (name, str(found)) == (name, value)
            assert query(session, "SELECT id FROM t") == []
            with admin.cursor() as cursor:
                cursor.execute(f"INSERT INTO `{database.name}`.t VALUES (1), (2)")
                cursor.execute("COMMIT")
            assert query(session, "SELECT id FROM t ORDER BY id") == [(1,), (2,)]
            assert query(session, 'SELECT "a" "b", %s, 1 / 3', ["é\\'\0"]) == [
                ("ab", "é\\'\0", Decimal("0.3333"))
            ]
    finally:
        with admin.cursor() as cursor:
            for name, value in first.items():
                cursor.execute(f"SET GLOBAL {name} = %s", [value])
        admin.close()


def test_the_server_itself_refuses_a_change_by_a_session_of_ours(database: Database) -> None:
    with connect(address_of(database), role="test") as session:
        with pytest.raises(Misconfigured) as caught:
            query(session, "INSERT INTO t VALUES (1)")
        assert caught.value.code == "MY_READ_ONLY"
        query(session, "LOCK TABLES t READ")
        query(session, "UNLOCK TABLES")


def test_a_session_says_who_it_is(database: Database) -> None:
    with connect(address_of(database), role="copy 1a2b") as session:
        shown = database.execute("SELECT info FROM information_schema.processlist WHERE command = 'Query'")
        assert shown
        [(statement,)] = query(
            session,
            "SELECT info FROM information_schema.processlist WHERE id = %s",
            [session.connection_id],
        )
        assert str(statement).startswith("/* headrace copy 1a2b */")


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"user": "app", "password": "hunter2"}, "MY_PASSWORD_REFUSED"),
        ({"user": "app", "password": "hünter2 ☃"}, "MY_PASSWORD_REFUSED"),
        ({"user": "nobody"}, "MY_PASSWORD_MISSING"),
        ({"user": "app", "port": 1}, "MY_UNREACHABLE"),
        ({"user": "app", "host": "host.invalid"}, "MY_UNREACHABLE"),
        ({"user": "app", "ssl-mode": "VERIFY_CA", "ssl-ca": "/nowhere"}, "MY_TLS_REFUSED"),
    ],
)
def test_a_login_that_cannot_be_is_a_coded_error_without_the_password(
    server: Server, monkeypatch: pytest.MonkeyPatch, options: dict[str, str], code: str
) -> None:
    server.start()
    monkeypatch.delenv("MYSQL_PWD", raising=False)
    address = MysqlAddress.parse(server.url(**options))  # type: ignore[arg-type]
    with pytest.raises(HeadraceError) as caught:
        connect(address, role="test")
    assert caught.value.code == code
    for secret in (server.password, server.password.split("/")[1], "hunter2", "hünter"):
        assert secret not in str(caught.value) + repr(caught.value)


def test_an_unknown_database_is_refused(server: Server) -> None:
    server.start()
    with pytest.raises(Misconfigured) as caught:
        connect(MysqlAddress.parse(server.url("nowhere")), role="test")
    assert caught.value.code == "MY_DATABASE_UNKNOWN"


def test_a_password_comes_from_the_environment(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    server.start()
    monkeypatch.setenv("MYSQL_PWD", server.password)
    with connect(
        MysqlAddress.parse(
            server.url(user="app", password=None).replace(":" + quote(server.password, safe=""), "")
        ),
        role="t",
    ) as one:
        settled = one.address
    monkeypatch.delenv("MYSQL_PWD")
    with connect(settled, role="t") as session:
        assert query(session, "SELECT CURRENT_USER()") == [("app@%",)]


def test_a_socket_and_ipv6_lead_to_the_server(server: Server) -> None:
    server.start()
    with connect(MysqlAddress.parse(f"mysql://root@/?socket={server.socket}"), role="test") as session:
        assert query(session, "SELECT 1") == [(1,)]
        assert session.packets.peer is None


def test_statements_come_one_by_one(database: Database) -> None:
    """Whoever got a quote into a statement of ours has no second one to write."""
    with connect(address_of(database), role="test") as session:
        with pytest.raises(Misconfigured) as caught:
            query(session, "SELECT 1; SELECT 2")
        assert caught.value.code == "MY_STATEMENT_REFUSED"


def test_a_server_that_asks_for_a_file_is_hung_up_on(database: Database, tmp_path: Path) -> None:
    database.server.execute("SET GLOBAL local_infile = 1")
    file = tmp_path / "secret"
    file.write_text("1\n")
    with connect(address_of(database), role="test") as session:
        mode = "tx_read_only" if session.release.is_mariadb else "transaction_read_only"
        query(session, f"SET SESSION {mode} = 0")
        with pytest.raises(HeadraceError) as caught:
            query(session, f"LOAD DATA LOCAL INFILE '{file}' INTO TABLE t")
        # A server that does not ask, since we said that we have no files, refuses the statement.
        assert session.is_closed or caught.value.code == "MY_STATEMENT_REFUSED"
    assert database.execute("SELECT * FROM t") == []


def test_a_setting_that_a_proxy_alters_is_noticed(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "PINS", {**connections.PINS, "lc_time_names": "DE_de"})
    with pytest.raises(Misconfigured) as caught:
        connect(address_of(database), role="test")
    assert caught.value.code == "MY_SETTING_REFUSED"


def test_a_proxy_that_answers_from_another_connection_is_refused(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_in = login.log_in

    def through_proxy(*arguments: Any, **options: Any) -> login.LoggedIn:
        made = log_in(*arguments, **options)
        return replace(made, connection_id=made.connection_id + 1)

    monkeypatch.setattr(login, "log_in", through_proxy)
    with pytest.raises(Misconfigured) as caught:
        connect(address_of(database), role="test")
    assert caught.value.code == "MY_POOLER"


def test_whoever_leaves_says_goodbye(database: Database) -> None:
    """A server counts who does not, and writes it into its log."""

    def aborted() -> int:
        [(_, count)] = database.execute("SHOW GLOBAL STATUS LIKE 'Aborted_clients'")
        return int(count)

    before = aborted()
    with connect(address_of(database), role="test") as session:
        query(session, "SELECT 1")
    gone = "SELECT 1 FROM information_schema.processlist WHERE id = %s"
    wait_for(lambda: not database.execute(gone, [session.connection_id]), "the session is gone")
    assert aborted() == before


def test_too_many_connections_are_transient(server: Server) -> None:
    server.start()
    [(most,)] = server.execute("SELECT @@global.max_connections")
    with closing(server.connect()) as admin:
        with admin.cursor() as cursor:
            cursor.execute("SET GLOBAL max_connections = 10")
        held = []
        try:
            with pytest.raises(Transient) as caught:  # noqa: PT012
                for _ in range(12):
                    held.append(connect(MysqlAddress.parse(server.url(user="app")), role="test"))
            assert caught.value.code == "MY_SERVER_FULL"
        finally:
            for session in held:
                session.close()
            with admin.cursor() as cursor:
                cursor.execute("SET GLOBAL max_connections = %s", [most])


def test_what_answers_may_be_no_server_at_all() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

        def answer() -> None:
            line, _ = listener.accept()
            with line:
                line.sendall(b"SSH-2.0-OpenSSH_9.2p1\r\n" * 100)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(HeadraceError) as caught:
            connect(MysqlAddress.parse(f"mysql://ann:hunter2@127.0.0.1:{port}/"), role="test")
        thread.join()
    assert caught.value.code == "MY_PROTOCOL_UNKNOWN"


@pytest.mark.full
def test_tls_is_verified_as_far_as_the_address_says(tmp_path: Path, server: Server) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "other").mkdir()
    ours, other = issue(tmp_path / "ours"), issue(tmp_path / "other")
    kind = mariadb if server.flavour.is_mariadb else mysql
    with kind({"require_secure_transport": "ON"}, tls=ours) as strict:

        def url(mode: str, authority: Path | None = None, host: str = "127.0.0.1") -> MysqlAddress:
            named = f"&ssl-ca={authority}" if authority else ""
            return MysqlAddress.parse(f"{strict.url(user='app', host=host)}?ssl-mode={mode}{named}")

        for address in (
            url("VERIFY_IDENTITY", ours.authority, "localhost"),
            url("REQUIRED"),
            url("PREFERRED"),
        ):
            with connect(address, role="test") as session:
                [(_, cipher)] = query(session, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
                assert cipher
        strict.execute("CREATE USER by_certificate REQUIRE SUBJECT '/CN=app'")
        bare = f"{strict.url(user='by_certificate', password='')}?sslrootcert={ours.authority}"
        pair = f"&sslcert={ours.client_certificate}&sslkey={ours.client_key}"
        with connect(MysqlAddress.parse(bare + pair), role="test") as session:
            assert query(session, "SELECT 1") == [(1,)]
        with pytest.raises(Misconfigured) as caught:
            connect(MysqlAddress.parse(bare), role="test")
        assert caught.value.code in ("MY_PASSWORD_MISSING", "MY_PASSWORD_REFUSED")
        for refused in (
            url("VERIFY_IDENTITY", other.authority),
            url("VERIFY_CA", other.authority),
            url("DISABLED"),
        ):
            with pytest.raises(Misconfigured) as caught:
                connect(refused, role="test")
            # MariaDB says of a login without TLS that the password is wrong.
            is_plain = refused.tls.mode is SslMode.DISABLED and server.flavour.is_mariadb
            assert caught.value.code == ("MY_PASSWORD_REFUSED" if is_plain else "MY_TLS_REFUSED")


def test_a_name_is_resolved_for_each_connection_and_a_silent_name_server_is_given_up(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leads to one server, then to another, then nobody says where."""
    server.start()
    over, answers = threading.Event(), [["127.0.0.9", "127.0.0.1"], ["127.0.0.9"]]

    def resolve(host: str, port: str, *more: object, **options: object) -> Any:
        if host != "db.test":
            return resolved(host, port, *more, **options)
        if not answers:
            over.wait(10)
            return []
        kind = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        return [(*kind, (each, int(port))) for each in answers.pop(0)]

    resolved: Any = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    options = {"host": "db.test", "connect-timeout": "1"}
    address = MysqlAddress.parse(server.url(user="app", **options))  # type: ignore[arg-type]
    try:
        with closing(connect(address, role="test")) as session:
            assert session.packets.peer == "127.0.0.1"
        refused = []
        for _ in range(2):
            with pytest.raises(Transient) as caught:
                connect(address, role="test")
            refused.append((caught.value.code, caught.value.detail))
    finally:
        over.set()
    silent = 'the name "db.test" was not resolved within 1 s'
    assert refused == [("MY_UNREACHABLE", "Connection refused"), ("MY_UNREACHABLE", silent)]
